package listing

import (
	"fmt"
	"strconv"
	"strings"
)

// JoinNames joins names by commas, for SplitNames.
func JoinNames(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = quoted(name)
	}
	return strings.Join(list, ",")
}

// SplitNames splits names at commas. A name that contains a comma is in quotes: "a,b",c.
func SplitNames(text string) (names []string, err error) {
	for _, part := range split(text) {
		name, err := unquoted(part)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// quoted returns a name or value for a list or a selector, in quotes if it has special characters.
func quoted(s string) string {
	if s != strings.TrimSpace(s) || strings.ContainsAny(s, `,()"`) {
		return strconv.Quote(s)
	}
	return s
}

func unquoted(s string) (string, error) {
	if s = strings.TrimSpace(s); !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	text, err := strconv.Unquote(s)
	if err != nil {
		return "", fmt.Errorf(`%s begins with a quote, and does not end with one`, s)
	}
	return text, nil
}

// split splits at commas outside of parentheses and quotes.
func split(text string) (parts []string) {
	begin, depth := 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && isValueStart(text[:i]):
			if whole, err := strconv.QuotedPrefix(text[i:]); err == nil {
				i += len(whole) - 1
			}
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, text[begin:i])
			begin = i + 1
		}
	}
	return append(parts, text[begin:])
}

// isValueStart reports whether a value begins after a text.
func isValueStart(text string) bool {
	text = strings.TrimRight(text, " ")
	return text == "" || strings.ContainsRune("=(,", rune(text[len(text)-1]))
}
