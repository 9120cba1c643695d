// Package checkpoint keeps the state of a training run in files: the parameters, and what
// the update rule remembers of them, in shards that several ranks write at once, and a
// manifest that makes them a set (Poseidon, section 4.1: servers checkpoint what they hold).
//
//	dir/iter_400.rank_0.shard   float32, little-endian: parameters, then each history, then residuals
//	dir/iter_400.rank_1.shard
//	dir/iter_400.manifest       text: the iteration, the net, who holds what, the shards' digests
//
// The manifest is written last, when all shards are on the disk. So a set is whole or
// absent, whenever a process is killed and wherever a write fails:
//
//	digest, err := checkpoint.WriteShard(nil, checkpoint.ShardPath(dir, 400, rank), values) // every rank
//	…                                                                                        // digests to one rank
//	err = m.Write(nil, dir)                                                                  // there
//	err = checkpoint.Clean(nil, dir, 400, 200)                                               // all but these two
//
// Load checks all digests, and fills packed buffers, whatever number of ranks wrote them:
//
//	path, err := checkpoint.Find(dir) // the newest whole set
//	m, err := checkpoint.Load(path, layout, [][]float32{data, history})
//	err = m.ReadResiduals(filepath.Dir(path), rank, from, values) // a piece of what a rank of the run had left out
//
// Residuals, what quantised gradients have left out so far (scheme onebit), are of each worker
// and each owner of a stripe: no two hold the same, and they stay apart in the set.
//
// The package knows neither ranks' communication nor solvers.
package checkpoint
