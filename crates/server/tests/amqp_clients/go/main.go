// go-amqp: HOST PORT NAME SECRET.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/Azure/go-amqp"
)

const reply = "command_response/default/tour"

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	options := &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(os.Args[3], os.Args[4])}
	connection, err := amqp.Dial(ctx, "amqp://"+os.Args[1]+":"+os.Args[2], options)
	must(err)
	session, err := connection.NewSession(ctx, nil)
	must(err)
	sender, err := session.NewSender(ctx, "command/default", nil)
	must(err)
	type received struct {
		kind    string
		message *amqp.Message
	}
	all := make(chan received)
	for _, address := range []string{"telemetry/default", "event/default", reply} {
		receiver, err := session.NewReceiver(ctx, address, nil)
		must(err)
		go func() {
			for {
				message, err := receiver.Receive(ctx, nil)
				if err != nil {
					return
				}
				must(receiver.AcceptMessage(ctx, message))
				all <- received{strings.Split(address, "/")[0], message}
			}
		}()
	}
	fmt.Println("ready")
	for one := range all {
		device, body := one.message.ApplicationProperties["device_id"], string(one.message.GetData())
		if one.kind == "command_response" {
			status := one.message.ApplicationProperties["status"]
			fmt.Println(one.kind, device, body, status, one.message.Properties.CorrelationID)
			must(connection.Close())
			return
		}
		fmt.Printf("%s %s %s\n", one.kind, device, body)
		if one.kind == "telemetry" && body == "go" {
			to, subject, replyTo := "command/default/d", "on", reply
			command := amqp.NewMessage([]byte("input"))
			command.Properties = &amqp.MessageProperties{To: &to, Subject: &subject, ReplyTo: &replyTo, CorrelationID: "c-1"}
			must(sender.Send(ctx, command, nil))
			fmt.Println("outcome accepted")
		}
	}
}
