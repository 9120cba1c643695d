// Command osu_ialltoall is a program of osu-bench: see package
// github.com/scaffe/scaffe/osu-bench/omb, and osu_ialltoall -h.
package main

import "github.com/scaffe/scaffe/osu-bench/omb"

func main() { omb.Main("osu_ialltoall") }
