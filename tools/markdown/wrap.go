// Package markdown formats what programs and tests write for docs/.
package markdown

import "strings"

const columns = 100

// Wrap breaks a paragraph at blanks into lines of at most 100 columns, but not within code that
// fits into a line. Lines after the first start with indent.
func Wrap(text, indent string) string {
	var b strings.Builder
	used := 0
	for i, word := range words(text) {
		switch {
		case i == 0:
		case used+1+len(word) > columns:
			b.WriteString("\n" + indent)
			used = len(indent)
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += len(word)
	}
	return b.String() + "\n"
}

// Item returns an item of a list.
func Item(text string) string { return Wrap("- "+text, "  ") }

// words splits a paragraph at blanks outside of code.
func words(text string) (list []string) {
	code := ""
	for _, word := range strings.Fields(text) {
		if code != "" {
			word = code + " " + word
		}
		code = ""
		switch open := strings.Count(word, "`")%2 == 1; {
		case open && len(word) < columns/2:
			code = word
		default:
			list = append(list, word)
		}
	}
	if code != "" {
		list = append(list, code)
	}
	return list
}
