// Package mem names memory: which bytes (Buffer), in which memory they lie
// (Space), what they hold (Datatype) and how two of them combine (Op).
//
// It owns nothing that moves or adds bytes: package kernels adds them, a
// transport of package nbc moves them. A Buffer is a small value; copying it
// copies the name, not the bytes.
//
//	grad, err := mem.TryAlloc(mem.Float32.Bytes(1 << 20)) // 4 MiB on the host, zeroed
//	...
//	defer grad.Free()
//	chunk := grad.Slice(mem.Float32.Bytes(256), mem.Float32.Bytes(128))
//	mem.Float32s(chunk)[0] = 1
package mem
