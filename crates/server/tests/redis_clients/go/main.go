// go-redis as a user would write it: commands, a pipeline, an optimistic transaction, publish and subscribe, expiry.
// Argument: HOST:PORT.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: os.Args[1], Protocol: protocol, ClientName: "go"})
		commands(ctx, client)
		pipeline(ctx, client)
		transaction(ctx, client)
		publishAndSubscribe(ctx, client)
		must(client.Close())
	}
	fmt.Println("ok go-redis")
}

func commands(ctx context.Context, client *redis.Client) {
	must(client.Set(ctx, "go:key", "value", 0).Err())
	equal(must1(client.Get(ctx, "go:key").Result()), "value")
	_, err := client.Get(ctx, "go:missing").Result()
	equal(errors.Is(err, redis.Nil), true)
	equal(must1(client.SetNX(ctx, "go:key", "other", 0).Result()), false)
	equal(must1(client.Append(ctx, "go:key", "!").Result()), int64(6))
	equal(must1(client.IncrBy(ctx, "go:count", 41).Result()), int64(41))
	equal(must1(client.Incr(ctx, "go:count").Result()), int64(42))
	equal(must1(client.IncrByFloat(ctx, "go:float", 10.5).Result()), 10.5)
	err = client.Incr(ctx, "go:key").Err()
	equal(err.Error(), "ERR value is not an integer or out of range")

	must(client.Set(ctx, "go:short", "lived", time.Minute).Err())
	left := must1(client.PTTL(ctx, "go:short").Result())
	equal(left > 0 && left <= time.Minute, true)
	equal(must1(client.Persist(ctx, "go:short").Result()), true)
	equal(must1(client.TTL(ctx, "go:short").Result()), time.Duration(-1))
	must(client.Set(ctx, "go:gone", "soon", 20*time.Millisecond).Err())
	for must1(client.Exists(ctx, "go:gone").Result()) == 1 {
	}

	equal(must1(client.MSet(ctx, "go:a", "1", "go:b", "2").Result()), "OK")
	equal(fmt.Sprint(must1(client.MGet(ctx, "go:a", "go:none", "go:b").Result())), "[1 <nil> 2]")
	equal(must1(client.SetBit(ctx, "go:bits", 7, 1).Result()), int64(0))
	equal(must1(client.BitCount(ctx, "go:bits", nil).Result()), int64(1))

	found := map[string]bool{}
	scan := client.Scan(ctx, 0, "go:*", 3).Iterator()
	for scan.Next(ctx) {
		found[scan.Val()] = true
	}
	must(scan.Err())
	for _, key := range []string{"go:a", "go:b", "go:bits", "go:count", "go:float", "go:key", "go:short"} {
		equal(found[key], true)
	}
	equal(must1(client.Del(ctx, "go:a", "go:b", "go:bits", "go:count", "go:float", "go:key", "go:short").Result()), int64(7))
}

func pipeline(ctx context.Context, client *redis.Client) {
	var last *redis.IntCmd
	sent := must1(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for at := 0; at < 1000; at++ {
			last = pipe.Incr(ctx, "go:pipelined")
		}
		return nil
	}))
	equal(len(sent), 1000)
	equal(last.Val(), int64(1000))
	equal(must1(client.Del(ctx, "go:pipelined").Result()), int64(1))
}

// Two writers of one key: the one that was overtaken hears so and tries again.
func transaction(ctx context.Context, client *redis.Client) {
	overtaken := false
	increase := func(tx *redis.Tx) error {
		seen, err := tx.Get(ctx, "go:watched").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if !overtaken {
			overtaken = true
			must(client.Set(ctx, "go:watched", 10, 0).Err())
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "go:watched", seen+1, 0)
			return nil
		})
		return err
	}
	equal(errors.Is(client.Watch(ctx, increase, "go:watched"), redis.TxFailedErr), true)
	must(client.Watch(ctx, increase, "go:watched"))
	equal(must1(client.GetDel(ctx, "go:watched").Result()), "11")
}

func publishAndSubscribe(ctx context.Context, client *redis.Client) {
	subscription := client.PSubscribe(ctx, "go:news:*")
	defer subscription.Close()
	must1(subscription.Receive(ctx))
	equal(must1(client.Publish(ctx, "go:news:today", "hello").Result()), int64(1))
	message := must1(subscription.ReceiveMessage(ctx))
	equal(message.Pattern+" "+message.Channel+" "+message.Payload, "go:news:* go:news:today hello")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func must1[Value any](value Value, err error) Value {
	must(err)
	return value
}

func equal[Value comparable](got, expected Value) {
	if got != expected {
		panic(fmt.Sprintf("got %v, expected %v", got, expected))
	}
}
