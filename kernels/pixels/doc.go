// Package pixels holds the loops that make the values of an image what a net
// takes: float32, the mean subtracted, scaled, mirrored or not.
//
//	row := pixels.Row{Mean: 104, Scale: 0.017, Mirror: true}
//	row.Bytes(dst, src) // the last of dst is (src[0] - 104) * 0.017
//
// It works on one row of one channel (or many rows that lie one after another,
// where none is mirrored). Which part of an image is taken, whether it is
// mirrored and which mean belongs to a channel the caller decides: package
// caffe/data does, by what a prototxt says and by chance.
//
// Bytes has a portable form in Go and an AVX2 form, chosen by the processor.
// SCAFFE_KERNELS=portable asks for the portable one, as in package kernels.
// Both give the same bits (apart from the payload of NaNs): a subtraction and a
// multiplication, each rounded. Nothing here allocates.
//
// The AVX2 loops are written by internal/gen (go generate ./kernels/pixels).
package pixels
