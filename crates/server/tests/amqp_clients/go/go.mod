module amqpclients

go 1.22

require github.com/Azure/go-amqp v1.5.0
