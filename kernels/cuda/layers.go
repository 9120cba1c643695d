package cuda

import "math"

// Kernel is one of layers.cu, whose comments say what each computes, of which buffers and numbers.
type Kernel int

// The kernels.
const (
	Fill Kernel = iota
	Multiply
	Scaled
	Part
	NotFinite
	AddRows
	SumPlanes
	AddBias
	PairSums
	AddPairSums
	Product
	Im2col
	Col2im
	ReluForward
	ReluBackward
	MaxForward
	MaxBackward
	AveForward
	AveBackward
	SoftmaxForward
	SoftmaxBackward
	LossOfEach
	MeanOf
	LossBackward
	Hits
	LrnAcross
	LrnAcrossBackward
	LrnWithin
	LrnRatio
	LrnWithinBackward
	Greater
	WhereNumber
	ProductGradient
	Affine
	Moments
	GlobalMoments
	Normalize
	MeanGradients
	NormalizeBackward
)

// layerKernels has each kernel's name, and how many buffers and numbers it takes.
var layerKernels = [...]struct {
	name             string
	buffers, numbers int
}{
	Fill:              {"fill", 1, 1},
	Multiply:          {"multiply", 3, 0},
	Scaled:            {"scaled", 2, 2},
	Part:              {"part", 2, 6},
	NotFinite:         {"not_finite", 2, 1},
	AddRows:           {"add_rows", 2, 1},
	SumPlanes:         {"sum_planes", 2, 1},
	AddBias:           {"add_bias", 2, 1},
	PairSums:          {"pair_sums", 3, 2},
	AddPairSums:       {"add_pair_sums", 3, 1},
	Product:           {"product", 3, 13},
	Im2col:            {"im2col", 2, 13},
	Col2im:            {"col2im", 2, 13},
	ReluForward:       {"relu_forward", 2, 1},
	ReluBackward:      {"relu_backward", 3, 1},
	MaxForward:        {"max_forward", 3, 10},
	MaxBackward:       {"max_backward", 3, 10},
	AveForward:        {"ave_forward", 2, 10},
	AveBackward:       {"ave_backward", 2, 10},
	SoftmaxForward:    {"softmax_forward", 2, 2},
	SoftmaxBackward:   {"softmax_backward", 3, 2},
	LossOfEach:        {"loss_of_each", 3, 4},
	MeanOf:            {"mean_of", 2, 2},
	LossBackward:      {"loss_backward", 3, 5},
	Hits:              {"hits", 3, 5},
	LrnAcross:         {"lrn_across", 3, 6},
	LrnAcrossBackward: {"lrn_across_backward", 5, 5},
	LrnWithin:         {"lrn_within", 3, 2},
	LrnRatio:          {"lrn_ratio", 4, 0},
	LrnWithinBackward: {"lrn_within_backward", 5, 2},
	Greater:           {"greater", 3, 2},
	WhereNumber:       {"where_number", 3, 1},
	ProductGradient:   {"product_gradient", 4, 0},
	Affine:            {"affine", 4, 1},
	Moments:           {"moments", 7, 3},
	GlobalMoments:     {"global_moments", 5, 1},
	Normalize:         {"normalize", 5, 1},
	MeanGradients:     {"mean_gradients", 3, 1},
	NormalizeBackward: {"normalize_backward", 6, 1},
}

// String returns the kernel's name in layers.cu.
func (k Kernel) String() string { return layerKernels[k].name }

// Number is a parameter of a kernel that is a number with a fraction.
func Number(x float64) int64 { return int64(math.Float64bits(x)) }
