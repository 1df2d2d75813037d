package manifest

import "encoding/json"

// lineValue is an object of a file whose lines are not YAML: each error in it has the place of the
// line.
type lineValue struct {
	jsonValue
	line int
}

func (v *lineValue) place() (line, column int)         { return v.line, 1 }
func (v *lineValue) member(string) (value, bool)       { return nil, false }
func (v *lineValue) elements() (list []value, ok bool) { return nil, false }

// FromLine returns the object that a line of a file describes.
func FromLine(file string, line int, kind string, metadata, spec json.RawMessage) Object {
	whole := &lineValue{jsonValue{raw: spec}, line}
	return Object{Kind: kind, Metadata: metadata, Spec: spec, file: file, whole: whole, spec: whole, metadata: whole}
}
