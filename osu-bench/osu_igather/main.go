// Command osu_igather is a program of osu-bench: see package
// github.com/scaffe/scaffe/osu-bench/omb, and osu_igather -h.
package main

import "github.com/scaffe/scaffe/osu-bench/omb"

func main() { omb.Main("osu_igather") }
