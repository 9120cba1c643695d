package mem

import "fmt"

// Datatype is the type of a buffer's elements.
type Datatype uint8

// The datatypes that every reduction supports.
const (
	Float32 Datatype = iota
	Float64
	Float16  // IEEE 754 binary16, stored as its bits
	BFloat16 // the upper half of a Float32, stored as its bits
	Int32
	Int64
	Uint8
)

// Datatypes lists every Datatype, for tests and tables.
var Datatypes = []Datatype{Float32, Float64, Float16, BFloat16, Int32, Int64, Uint8}

var datatypes = [...]struct {
	name string
	size int
}{
	Float32: {"f32", 4}, Float64: {"f64", 8}, Float16: {"f16", 2}, BFloat16: {"bf16", 2},
	Int32: {"i32", 4}, Int64: {"i64", 8}, Uint8: {"u8", 1},
}

// Size returns the size of one element in bytes.
func (d Datatype) Size() int { return datatypes[d].size }

// Bytes returns the size of n elements in bytes.
func (d Datatype) Bytes(n int) int { return n * datatypes[d].size }

// Valid reports whether d is one of Datatypes.
func (d Datatype) Valid() bool { return int(d) < len(datatypes) }

// String returns the short name: f32, f64, f16, bf16, i32, i64, u8.
func (d Datatype) String() string {
	if !d.Valid() {
		return fmt.Sprintf("datatype(%d)", uint8(d))
	}
	return datatypes[d].name
}

// Float reports whether d is a floating-point type.
func (d Datatype) Float() bool {
	return d == Float32 || d == Float64 || d == Float16 || d == BFloat16
}

// ParseDatatype is the inverse of String.
func ParseDatatype(s string) (Datatype, error) {
	for _, d := range Datatypes {
		if datatypes[d].name == s {
			return d, nil
		}
	}
	return 0, fmt.Errorf("mem: unknown datatype %q: use one of %v", s, Datatypes)
}

// Op is how two elements combine in a reduction. All are commutative; over
// floating-point numbers Sum and Prod are not associative, so the order of
// combination is part of the result's bits.
type Op uint8

// The reduction operators.
const (
	Sum Op = iota
	Prod
	Min
	Max
	// Avg is Sum divided by the number of contributions, of floating-point types.
	// It is what a whole collective does, not two elements: package collectives makes it of Sum,
	// kernels refuse it, and Ops does not list it.
	Avg
)

// Ops lists every Op that combines two elements, for tests and tables.
var Ops = []Op{Sum, Prod, Min, Max}

var ops = [...]string{Sum: "sum", Prod: "prod", Min: "min", Max: "max", Avg: "avg"}

// Valid reports whether o is one of Ops.
func (o Op) Valid() bool { return o < Avg }

// String returns sum, prod, min, max or avg.
func (o Op) String() string {
	if int(o) >= len(ops) {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return ops[o]
}

// ParseOp is the inverse of String.
func ParseOp(s string) (Op, error) {
	for o, name := range ops {
		if name == s {
			return Op(o), nil
		}
	}
	return 0, fmt.Errorf("mem: unknown op %q: use one of %v", s, ops)
}
