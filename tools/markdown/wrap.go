// Package markdown formats what programs and tests write for docs/.
package markdown

import "strings"

// Wrap breaks a paragraph into lines of at most 100 columns where it has blanks. Lines after the
// first start with indent.
func Wrap(text, indent string) string {
	const columns = 100
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
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
