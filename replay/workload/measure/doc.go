// Package measure makes profiles (package workload) of nets: it runs a net and
// takes the times of its layers, as caffe time does, and it counts what each
// layer computes.
//
//	n, err := measure.Open("train_val.prototxt", measure.Options{Batch: 32})
//	...
//	t, err := measure.Net(ctx, n, 2, 20)
//	err = t.Write(os.Stdout, "text")
//	text := t.Profile("measured here").String()
//
// It must not know of ranks or communication.
package measure
