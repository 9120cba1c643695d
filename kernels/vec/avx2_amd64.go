package vec

//go:generate go run -tags generate ./internal/gen -out avx2_loops_amd64.s -stubs avx2_loops_amd64.go -pkg vec

var avx2Vectors = [vectorOps]vectorLoop{
	opAdd: addF32s, opMul: mulF32s, opScale: scaleF32s, opAddScaled: addScaledF32s, opAddMul: addMulF32s,
	opAffine: affineF32s, opAffineKeep: affineKeepF32s,
	opNormalize: normalizeF32s, opNormalizeBoth: normalizeBothF32s, opNormalizeGrad: normalizeGradF32s,
	opSigmoidGrad: sigmoidGradF32s, opTanhGrad: tanhGradF32s,
	opTakeGreater: takeGreaterF32s, opWhere: whereF32s,
	opExp: expF32s, opSigmoid: sigmoidF32s, opTanh: tanhF32s,
}

// avx2Updates are the loops of each rule: L2 or L1, keeping or clearing the
// gradient.
var avx2Updates = [updateRules][2][2]updateLoop{
	ruleSGD:      {{sgdL2, sgdL2Clear}, {sgdL1, sgdL1Clear}},
	ruleNesterov: {{nesterovL2, nesterovL2Clear}, {nesterovL1, nesterovL1Clear}},
	ruleAdaGrad:  {{adaGradL2, adaGradL2Clear}, {adaGradL1, adaGradL1Clear}},
	ruleRMSProp:  {{rmsPropL2, rmsPropL2Clear}, {rmsPropL1, rmsPropL1Clear}},
	ruleAdaDelta: {{adaDeltaL2, adaDeltaL2Clear}, {adaDeltaL1, adaDeltaL1Clear}},
	ruleAdam:     {{adamL2, adamL2Clear}, {adamL1, adamL1Clear}},
}
