//go:build cgo

package data

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// BenchmarkLoader: from the data set to the layer's blob, per number of
// decoding goroutines.
func BenchmarkLoader(b *testing.B) {
	cifar, imagenet := Shape{3, 32, 32}, Shape{3, 256, 256}
	jpeg := jpegFile(b, photograph(500, 375))
	encoded := makeLMDB(b, 64, Shape{}, func(i int, d *proto.Datum) { d.Data, d.Encoded = jpeg, pb.Bool(true) })
	list := jpegList(b, 64, jpeg)
	for _, c := range []struct {
		name        string
		batch, crop int
		mean        Shape
		open        func() (Source, error)
	}{
		{"cifar-lmdb", 100, 28, cifar, lmdbOf(b, 2000, cifar)},
		{"imagenet-lmdb", 64, 227, imagenet, lmdbOf(b, 256, imagenet)},
		{"imagenet-jpeg-lmdb", 32, 227, Shape{3, 375, 500}, func() (Source, error) { return OpenLMDB(encoded, Native) }},
		{"imagenet-jpeg-list", 32, 227, imagenet, func() (Source, error) {
			return OpenList(list, ListOptions{Root: filepath.Dir(list) + "/", Height: 256, Width: 256, Shuffle: true})
		}},
	} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/workers=%d", c.name, workers), func(b *testing.B) {
				src, err := c.open()
				if err != nil {
					b.Fatal(err)
				}
				l := mustLoader(b, Config{
					Source: src, BatchSize: c.batch, Labels: true, Options: Options{Workers: workers},
					Transform: &Transformer{scale: 1, mirror: true, crop: c.crop, train: true, mean: make([]float32, c.mean.Count()), meanShape: c.mean},
				})
				defer l.Close()
				data, labels := make([]float32, c.batch*l.Shape().Count()), make([]float32, c.batch)
				b.ReportAllocs()
				for b.Loop() {
					if err := l.Next(data, labels); err != nil {
						b.Fatal(err)
					}
				}
				perImage(b, c.batch)
			})
		}
	}
}

// lmdbOf makes an LMDB of n random raw samples.
func lmdbOf(b *testing.B, n int, s Shape) func() (Source, error) {
	r := rand.NewChaCha8([32]byte{1})
	path := makeLMDB(b, n, s, func(_ int, d *proto.Datum) { _, _ = r.Read(d.Data) })
	return func() (Source, error) { return OpenLMDB(path, Native) }
}

// jpegList makes a list of n files with the same content.
func jpegList(b *testing.B, n int, file []byte) string {
	var list strings.Builder
	dir := b.TempDir()
	for i := range n {
		name := fmt.Sprintf("%d.jpg", i)
		if err := os.WriteFile(filepath.Join(dir, name), file, 0o644); err != nil {
			b.Fatal(err)
		}
		fmt.Fprintln(&list, name, i)
	}
	path := filepath.Join(dir, "list.txt")
	if err := os.WriteFile(path, []byte(list.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	return path
}
