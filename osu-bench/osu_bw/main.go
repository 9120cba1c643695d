// Command osu_bw is a program of osu-bench: see package
// github.com/scaffe/scaffe/osu-bench/bench, and osu_bw -h.
package main

import "github.com/scaffe/scaffe/osu-bench/bench"

func main() { bench.Main("osu_bw") }
