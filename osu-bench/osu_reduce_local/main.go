// Command osu_reduce_local is a program of osu-bench: see package
// github.com/scaffe/scaffe/osu-bench/omb, and osu_reduce_local -h.
package main

import "github.com/scaffe/scaffe/osu-bench/omb"

func main() { omb.Main("osu_reduce_local") }
