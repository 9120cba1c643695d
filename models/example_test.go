package models_test

import (
	"fmt"
	"log"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/models"
)

// A built-in net runs without any file: random images stand for its data.
func Example() {
	file, err := models.Net("resnet110_cifar")
	if err != nil {
		log.Fatal(err)
	}
	n, err := net.New(file, net.Options{Phase: proto.Phase_TRAIN, Rewrite: net.Synthetic(2, 3, 32, 32)})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	cost := models.Total(models.Costs(n))
	fmt.Println(n.Name(), cost.Learned, "learned parameters")
	// Output:
	// ResNet-110 1727962 learned parameters
}
