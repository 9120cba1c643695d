// Package data reads training samples: from LMDBs of Datum, from lists of
// image files, decoded and transformed ahead of time by a Loader.
//
// # Reading ahead
//
// Each rank has a Loader of its own (S-Caffe, section 4.1, Figure 3: parallel
// readers). Its workers read, decode and transform samples into a queue of
// batches while the net computes on an earlier one. They share the batch that
// is needed soonest, each with a Fork of the Source. Batches and errors are
// delivered in order, with the same bits whatever the number of workers. Stats
// shows how full the queue was and for how long the net starved.
//
// # Parts
//
// The sequence of global batches over a data set is fixed by its key order
// (or by Seed and the pass, where a list is shuffled): global batch k covers
// the samples k*B to (k+1)*B of the endless repetition of the data set. A
// reader reads its Part of each of them. This package knows nothing of ranks:
// the caller turns a rank into a Part. Every random choice is a function of the
// Seed and of the sample's counter, so that however many parts there are,
// together they read exactly the same batch. A loader can be
// positioned at any global batch (SeekBatch).
//
// # Pixels
//
// A sample is channels × height × width, each channel a plane; an image file
// becomes the planes blue, green, red (OpenCV's order, hence Caffe's) or one
// plane of gray. A Transformer then applies Caffe's transform_param:
// crop, mirror, subtract the mean at the cropped position, multiply by the
// scale, in that order; the arithmetic is that of package kernels/pixels.
//
// # Bad input
//
// Bad input is an error that names the file and the key or line, delivered at
// the batch it belongs to; it never causes a panic.
//
// An LMDB is mapped into memory and read by this package itself, which checks
// every page before it follows it: its tree, with the number of entries, when
// it is opened (OpenLMDB says what that costs), the pages of large values when
// they are read. A file that is shorter than its header says is refused, since a
// page that is not there would end the process. LMDB stores no checksums: bytes
// that are changed within a value are noticed only if the record or its image
// can no longer be decoded.
//
// Writing an LMDB needs cgo (the LMDB library is C); without it Create returns
// an error, and the rest works.
package data
