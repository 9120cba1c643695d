//go:build cgo

package data_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
)

// A data set of four images is written, and read in batches of two by the second
// of two workers, which decodes ahead.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "lmdb")
	w, err := data.Create(path, false)
	if err != nil {
		log.Fatal(err)
	}
	for i := range 4 {
		s := data.Sample{Shape: data.Shape{C: 1, H: 1, W: 2}, Bytes: []byte{byte(i), 10}, Label: int32(i), HasLabel: true}
		if err := w.Put(fmt.Sprintf("%08d", i), data.AppendDatum(nil, &s)); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		log.Fatal(err)
	}

	source, err := data.OpenLMDB(path, data.Native)
	if err != nil {
		log.Fatal(err)
	}
	transform, err := data.NewTransformer(nil, proto.Phase_TRAIN, 1)
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(data.Config{
		Source: source, Transform: transform, BatchSize: 2, Labels: true,
		Options: data.Options{Part: data.Part{Index: 1, Of: 2}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer loader.Close()
	values, labels := make([]float32, loader.LocalBatch()*loader.Shape().Count()), make([]float32, loader.LocalBatch())
	for range 2 {
		if err := loader.Next(values, labels); err != nil {
			log.Fatal(err)
		}
		fmt.Println(values, labels)
	}
	// Output:
	// [1 10] [1]
	// [3 10] [3]
}
