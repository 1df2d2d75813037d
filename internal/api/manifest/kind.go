// Package manifest reads users' files of objects: YAML with any number of documents, JSON, and the
// lists that the existing `loxicmd save` writes. It knows the names of kinds and the position of
// each property; the server interprets the objects.
package manifest

import (
	"slices"
	"strings"
	"sync"

	"loxilb/internal/kinds"
)

// APIVersion is the version of all documents.
const APIVersion = "netlox/v1"

// Kinds returns the kinds that documents may have, in the order in which objects are saved and
// applied.
var Kinds = sync.OnceValue(func() (list []kinds.Words) {
	for _, k := range kinds.All() {
		if words := k.About(); words.Document != "" {
			list = append(list, words)
		}
	}
	return list
})

// Find returns the kind of a name or an alias, in any case.
func Find(word string) (kinds.Words, bool) {
	same := func(other string) bool { return word != "" && strings.EqualFold(word, other) }
	for _, k := range Kinds() {
		if same(k.Document) || same(k.Command) || slices.ContainsFunc(k.Aliases, same) {
			return k, true
		}
	}
	return kinds.Words{}, false
}

// names lists all kinds.
func names() string {
	var list []string
	for _, k := range Kinds() {
		list = append(list, k.Document)
	}
	return strings.Join(list, ", ")
}
