package dataset

import (
	"fmt"

	"github.com/scaffe/scaffe/caffe/data"
)

// MeanOptions says what Mean averages.
type MeanOptions struct {
	// Source is the LMDB to read.
	Source string
	// Path is the mean file to write; an existing one is replaced. Empty writes
	// none.
	Path string
	// Progress, where set, is called now and then.
	Progress func(done, total int)
}

// Mean averages the samples of an LMDB pixel by pixel and writes the mean
// image as Caffe's compute_image_mean. It returns the mean value of each
// channel, for transform_param's mean_value.
func Mean(o MeanOptions) ([]float32, error) {
	src, err := data.OpenLMDB(o.Source, data.Native)
	if err != nil {
		return nil, fmt.Errorf("dataset: mean: %w", err)
	}
	defer src.Close()
	n := src.Len()
	m := &meter{report: o.Progress, total: int(n)}
	var s data.Sample
	var shape data.Shape
	var sum []float64
	for i := range n {
		if err := src.Read(0, i, &s); err != nil {
			return nil, fmt.Errorf("dataset: mean: %s: %w", src.Where(), err)
		}
		if sum == nil {
			shape, sum = s.Shape, make([]float64, s.Count())
		}
		if s.Shape != shape {
			return nil, fmt.Errorf("dataset: mean: %s: the sample is %v, but the first one is %v: all must have one shape", src.Where(), s.Shape, shape)
		}
		for j, v := range s.Bytes {
			sum[j] += float64(v)
		}
		if s.Bytes == nil {
			for j, v := range s.Floats {
				sum[j] += float64(v)
			}
		}
		m.add()
	}
	mean, channels := make([]float32, len(sum)), make([]float32, shape.C)
	plane := shape.H * shape.W
	for c := range channels {
		var total float64
		for j := c * plane; j < (c+1)*plane; j++ {
			mean[j] = float32(sum[j] / float64(n))
			total += sum[j] / float64(n)
		}
		channels[c] = float32(total / float64(plane))
	}
	if o.Path == "" {
		return channels, nil
	}
	if err := data.WriteMean(o.Path, mean, shape); err != nil {
		return nil, fmt.Errorf("dataset: mean: %w", err)
	}
	return channels, nil
}
