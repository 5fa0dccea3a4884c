// A Pub/Sub server in memory, for tests: its argument is the port that it listens on.
package main

import (
	"log"
	"os"
	"strconv"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	pstest.NewServerWithPort(port)
	select {}
}
