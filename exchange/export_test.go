package exchange

// WFBP is wait-free backpropagation, Poseidon's Algorithm 2, as a row of the
// table: every bucket is synchronized as soon as the backward pass of its layers
// has ended, push and pull one after the other on a goroutine of its own, and the
// iteration ends when all have been.
var WFBP = addDesign(row{name: "WFBP", policies: [...]policy{
	Reduce:    {pushAt: afterLayers, pushAwaitedAt: onSum, pullAt: onSum, pullAwaitedAt: atFinish},
	Allreduce: {pushAt: afterLayers, pushAwaitedAt: atFinish},
}})

func addDesign(r row) Design {
	designs = append(designs, r)
	return Design(len(designs) - 1)
}
