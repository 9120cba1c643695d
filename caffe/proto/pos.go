package proto

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/protocolbuffers/txtpbfmt/ast"
	"github.com/protocolbuffers/txtpbfmt/parser"
)

// Pos is a position in a text file. Lines and columns (in bytes) count from 1; a
// Pos without a line stands for the whole file.
type Pos struct {
	File      string
	Line, Col int
}

// String returns the position as compilers print it: file:line:column.
func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// Error is an error at a position in a text file.
type Error struct {
	Pos Pos
	Err error
}

// Error returns "file:line:column: message", with escapes for characters that
// cannot be printed.
func (e *Error) Error() string {
	if p := e.Pos.String(); p != "" {
		return visible(p + ": " + e.Err.Error())
	}
	return visible(e.Err.Error())
}

// Unwrap returns the error without the position.
func (e *Error) Unwrap() error { return e.Err }

func errorAt(p Pos, format string, args ...any) error {
	return &Error{p, fmt.Errorf(format, args...)}
}

// maxErrors is how many errors about one file are worth reading.
const maxErrors = 20

// byLine joins errors in the order of their positions. Those that are too many
// to read are only counted.
func byLine(errs []error) error {
	place := func(err error) Pos {
		var e *Error
		if errors.As(err, &e) {
			return e.Pos
		}
		return Pos{}
	}
	sort.SliceStable(errs, func(i, j int) bool {
		a, b := place(errs[i]), place(errs[j])
		return a.Line < b.Line || a.Line == b.Line && a.Col < b.Col
	})
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors:maxErrors], errorAt(place(errs[maxErrors]), "and %d more errors", more))
	}
	return errors.Join(errs...)
}

// node is one field of a text file with its position. The elements of a list
// ("dim: [1, 2]") are nodes of their own.
type node struct {
	name  string
	value string // of a scalar, as written, without quotes
	pos   Pos
	kids  []*node
}

// maxNesting bounds what the recursive parsers see. Caffe's messages nest six deep.
const maxNesting = 200

// parseTree reads the positions of all fields of a text that clean has prepared.
// It does not check names.
func parseTree(file string, text []byte) (root *node, err error) {
	root = &node{pos: Pos{File: file}}
	// The parser is that of a formatter, not built for hostile input.
	defer func() {
		if r := recover(); r != nil {
			root, err = &node{pos: Pos{File: file}}, fmt.Errorf("cannot be read: %v", r)
		}
	}()
	// It obeys directives in comments, some of which make it skip text. They are
	// disabled in a copy of the same length.
	copied := bytes.ReplaceAll(text, []byte("txtpbfmt:"), []byte("txtpbfmt "))
	nodes, err := parser.Parse(bytes.Clone(copied))
	if err != nil {
		return root, err
	}
	root.kids = newBuilder(file, text).build(nodes, "")
	return root, nil
}

// builder makes nodes from the formatter's tree.
type builder struct {
	file string
	text []byte
	ends []int // offsets of line ends
}

func newBuilder(file string, text []byte) *builder {
	b := &builder{file: file, text: text}
	for i, c := range text {
		if c == '\n' {
			b.ends = append(b.ends, i)
		}
	}
	return b
}

// build makes nodes. Elements of a list have no names of their own and take listName.
func (b *builder) build(nodes []*ast.Node, listName string) []*node {
	var out []*node
	for _, n := range nodes {
		if n.Name == "" && n.Children == nil && len(n.Values) == 0 {
			continue // a comment
		}
		name := n.Name
		if name == "" {
			name = listName
		}
		pos := b.place(n)
		switch {
		case n.ChildrenAsList:
			out = append(out, b.build(n.Children, n.Name)...)
		case n.Children != nil:
			out = append(out, &node{name: name, pos: pos, kids: b.build(n.Children, "")})
		case n.ValuesAsList:
			for _, v := range n.Values {
				out = append(out, &node{name: name, value: unquote(v.Value), pos: pos})
			}
		default:
			out = append(out, &node{name: name, value: joinValues(n.Values), pos: pos})
		}
	}
	return out
}

// joinValues concatenates the strings of a value that is written in pieces.
func joinValues(vs []*ast.Value) string {
	var s strings.Builder
	for _, v := range vs {
		s.WriteString(unquote(v.Value))
	}
	return s.String()
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// place finds the first byte of a field's name: the formatter's own positions
// are those of the comments and blanks before it.
func (b *builder) place(n *ast.Node) Pos {
	i := int(n.Start.Byte)
	for i < len(b.text) {
		switch c := b.text[i]; {
		case c == '#':
			end := bytes.IndexByte(b.text[i:], '\n')
			if end < 0 {
				end = len(b.text) - i
			}
			i += end
		case strings.IndexByte(" \t\r\n,;", c) >= 0:
			i++
		default:
			return b.at(i)
		}
	}
	return b.at(min(int(n.Start.Byte), len(b.text)))
}

func (b *builder) at(offset int) Pos {
	line := sort.SearchInts(b.ends, offset)
	start := 0
	if line > 0 {
		start = b.ends[line-1] + 1
	}
	return Pos{b.file, line + 1, offset - start + 1}
}

// all returns the fields of that name, in order.
func (n *node) all(name string) []*node {
	var out []*node
	if n == nil {
		return nil
	}
	for _, k := range n.kids {
		if k.name == name {
			out = append(out, k)
		}
	}
	return out
}

// find follows a path of field names, each with an index if repeated
// ("param[1]"), as far as it goes, and returns the last node it found.
func (n *node) find(path ...string) *node {
	for _, step := range path {
		name, index := step, 0
		if open := strings.IndexByte(step, '['); open >= 0 && strings.HasSuffix(step, "]") {
			name = step[:open]
			index, _ = strconv.Atoi(step[open+1 : len(step)-1])
		}
		ks := n.all(name)
		if index < 0 || index >= len(ks) {
			return n
		}
		n = ks[index]
	}
	return n
}

// first returns the value of the first field of that name.
func (n *node) first(name string) string {
	if ks := n.all(name); len(ks) > 0 {
		return ks[0].value
	}
	return ""
}
