// Package campaign measures the collectives over a grid of layouts, sizes and kinds of
// buffers, by starting the programs of osu-bench and others one after another:
//
//   - Sizes compares tuned with the MPI library, as it is and with the best of its
//     own algorithms, with UCC where it is installed, and with what is possible: on a node
//     a plain C program that does the same through shared memory (osu-bench/floor),
//     between nodes the wire.
//   - Regret compares what is selected without a table with every spec that a tuning run
//     would measure, and with the MPI library, and each time with the model's prediction.
//   - Figure replays a figure of the papers of Poseidon and P3 across the lab's nodes (scaffe replay --systems), at the
//     paper's ratio of bandwidth to computation; or at a given ratio, with what a node's port sends and receives meanwhile.
//   - Parameters shows how parameters are spread over the layers of nets, by the built-in profiles.
//   - Training trains a net for one (scaffe train), and reads loss and test error from its log.
//
// Every measurement is a row of a CSV file. A campaign that ends early, by Ctrl-C or an
// error, goes on where it stopped when it is started again with the same file.
//
// The package owns the grid, the file, tables and the picture. It must not know how
// anything is measured: the programs say so, in JSON.
package campaign
