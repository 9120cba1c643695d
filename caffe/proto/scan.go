package proto

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// scan calls f with the offset and value of every byte of a text that is
// neither in a string nor in a comment. A string ends with its line at the
// latest, as the text format has it.
func scan(text []byte, f func(i int, c byte)) {
	var quote byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0:
			if c == '\\' && i+1 < len(text) && text[i+1] != '\n' {
				i++
			} else if c == quote || c == '\n' {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		default:
			f(i, c)
		}
	}
}

var byteOrderMark = []byte("\uFEFF")

// clean prepares a text for the parsers: without a byte order mark, and with
// blanks in place of form feeds and vertical tabs, which are white space for
// protoc but not for them. It refuses control characters outside strings and
// comments, and braces that nest deeper than maxNesting.
func clean(file string, text []byte) ([]byte, error) {
	text = bytes.Clone(bytes.TrimPrefix(text, byteOrderMark))
	control, deep, depth := -1, -1, 0
	scan(text, func(i int, c byte) {
		switch {
		case c == '\f' || c == '\v':
			text[i] = ' '
		case c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f:
			if control < 0 {
				control = i
			}
		case c == '{' || c == '<' || c == '[':
			if depth++; depth > maxNesting && deep < 0 {
				deep = i
			}
		case c == '}' || c == '>' || c == ']':
			depth = max(depth-1, 0)
		}
	})
	if control >= 0 {
		return nil, errorAt(newBuilder(file, text).at(control), "syntax error: invalid character %q: this is not a text file, or it is damaged", rune(text[control]))
	}
	if deep >= 0 {
		return nil, errorAt(newBuilder(file, text).at(deep), "braces nest more than %d deep", maxNesting)
	}
	return text, nil
}

// openBrace finds the innermost brace that is still open at the end of a text.
// The Pos has no line if there is none.
func openBrace(file string, text []byte) Pos {
	var open []int
	scan(text, func(i int, c byte) {
		switch {
		case c == '{' || c == '<' || c == '[':
			open = append(open, i)
		case (c == '}' || c == '>' || c == ']') && len(open) > 0:
			open = open[:len(open)-1]
		}
	})
	if len(open) == 0 {
		return Pos{File: file}
	}
	return newBuilder(file, text).at(open[len(open)-1])
}

// visible escapes characters that a terminal would not show, or would obey.
func visible(s string) string {
	hidden := func(r rune) bool { return r != '\n' && r != '\t' && r != '\u00a0' && !unicode.IsPrint(r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case hidden(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}
