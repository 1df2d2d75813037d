package annotation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reader reads annotations. It keeps the table of All, so each Service does not build one.
type Reader struct {
	known map[string]*Annotation
	all   []Annotation
}

// NewReader returns a Reader of all annotations.
func NewReader() *Reader {
	r := &Reader{known: map[string]*Annotation{}, all: All()}
	for i := range r.all {
		a := &r.all[i]
		r.known[a.Name] = a
		for _, other := range a.Also {
			r.known[other] = a
		}
	}
	return r
}

// Read returns the settings of a Service: its annotations, and the defaults of the command line.
func (r *Reader) Read(annotations map[string]string, namespace string, defaults Settings) (Settings, error) {
	s := defaults
	for i := range r.all {
		a := &r.all[i]
		for _, name := range append([]string{a.Name}, a.Also...) {
			v, exists := annotations[name]
			if !exists {
				continue
			}
			if a.Unavailable != "" {
				return s, fmt.Errorf("annotation %s %s", name, a.Unavailable)
			}
			if err := a.set(&s, namespace, strings.TrimSpace(v)); err != nil {
				return s, fmt.Errorf("annotation %s: %.100q %w", name, v, err)
			}
			break // our own name comes first, and wins
		}
	}
	if len(s.Networks) > 0 {
		s.PodNetwork = true
	}
	return s, nil
}

// Known returns the annotations that Read uses.
func (r *Reader) Known(annotations map[string]string) map[string]string {
	known := maps.Clone(annotations)
	maps.DeleteFunc(known, func(name, _ string) bool { return r.known[name] == nil })
	return known
}

// Unknown returns unknown annotations with our prefix, such as misspelled ones.
func (r *Reader) Unknown(annotations map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(name, Prefix) && r.known[name] == nil {
			names = append(names, name)
		}
	}
	return names
}
