// Package define is the definition of scaffe's built-in nets: Go functions
// that build a net block by block as its paper does, and write it and its
// solver as Caffe's text.
//
// A net's source reads from top to bottom like the table in its paper: vgg.go,
// resnet.go, cifar.go, inception.go. What they are built with is in
// builder.go; text.go writes messages as text; files.go lists the nets.
//
// It must not know what a layer computes, or whether scaffe supports it: tests
// of package models build and run what is defined here.
package define
