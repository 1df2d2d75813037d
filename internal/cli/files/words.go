package files

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/manifest"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// wordField is a property that is a number in the REST API and a word in files.
type wordField struct {
	kind, group, property string
	renamed               string // its name in files; "": the API's
	word                  func(n int) string
	number                func(word string) (int, error) // nil: the server accepts the word
}

func wordedProperties() []wordField {
	return []wordField{
		{
			kind: kinds.ServiceDocument, group: "serviceArguments", property: "mode",
			word: func(n int) string { return lb.Mode(n).String() },
		},
		{
			kind: kinds.ServiceDocument, group: "serviceArguments", property: "sel", renamed: "select",
			word: func(n int) string { return lb.Algorithm(n).String() },
		},
		{
			kind: kinds.PolicerDocument, group: "policyInfo", property: "type",
			word: func(n int) string { return policy.PolicerTypeWord(n == 1) }, number: policerType,
		},
		{
			kind: kinds.MirrorDocument, group: "mirrorInfo", property: "type",
			word: func(n int) string { return policy.MirrorType(n).String() }, number: numberBy(policy.ParseMirrorType),
		},
		attachedTo(kinds.PolicerDocument),
		attachedTo(kinds.MirrorDocument),
		ruleProtocol("protocol"),
		ruleProtocol("maxProtocol"),
	}
}

// numberBy adapts parse to return a number.
func numberBy[T ~uint8](parse func(string) (T, error)) func(string) (int, error) {
	return func(word string) (int, error) {
		v, err := parse(word)
		return int(v), err
	}
}

func attachedTo(kind string) wordField {
	return wordField{
		kind: kind, group: "targetObject", property: "attachment",
		word: func(n int) string { return policy.AttachTo(n).String() }, number: numberBy(policy.ParseAttachTo),
	}
}

func ruleProtocol(property string) wordField {
	return wordField{
		kind: kinds.RuleDocument, group: "ruleArguments", property: property,
		word: func(n int) string { return policy.RuleProtocolWord(uint8(n)) }, number: numberBy(policy.ParseRuleProtocol),
	}
}

func policerType(word string) (int, error) {
	oneRate, err := policy.ParsePolicerType(word)
	if oneRate {
		return 1, err
	}
	return 0, err
}

// inWords returns an object's document with words instead of numbers, and without the defaults of a
// service.
func inWords(document json.RawMessage) (json.RawMessage, error) {
	var o struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Metadata   json.RawMessage `json:"metadata,omitempty"`
		Spec       json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(document, &o); err != nil {
		return nil, err
	}
	spec, err := specOf(o.Spec)
	if err != nil {
		return nil, err
	}
	addWords(o.Kind, spec)
	if o.Spec, err = json.Marshal(spec); err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

func specOf(data []byte) (spec map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return spec, d.Decode(&spec)
}

// addWords replaces numbers of a spec by words.
func addWords(kind string, spec map[string]any) {
	for _, w := range wordedProperties() {
		group, ok := spec[w.group].(map[string]any)
		if !ok || w.kind != kind {
			continue
		}
		word := w.wordOf(fmt.Sprint(group[w.property]))
		if word == "" {
			continue
		}
		delete(group, w.property)
		group[cmp.Or(w.renamed, w.property)] = word
	}
	if kind == kinds.ServiceDocument {
		dropDefaults(spec)
	}
}

// fieldsInWords replaces numbers by words in a list of changes, and uses the files' names of
// properties.
func fieldsInWords(kind string, fields []v1.FieldChange) []v1.FieldChange {
	out := slices.Clone(fields)
	for i := range out {
		for _, w := range wordedProperties() {
			if w.kind != kind || out[i].Field != w.group+"."+w.property {
				continue
			}
			out[i].Field = w.group + "." + cmp.Or(w.renamed, w.property)
			out[i].Before = cmp.Or(w.wordOf(out[i].Before), out[i].Before)
			out[i].After = cmp.Or(w.wordOf(out[i].After), out[i].After)
		}
	}
	return out
}

// wordOf returns the word for a number, or "" if there is none or the text is a word already.
func (w *wordField) wordOf(number string) string {
	n, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return ""
	}
	word := w.word(int(n))
	if word == number || strings.Contains(word, "(") {
		return "" // a newer server knows more words than this program
	}
	return word
}

// dropDefaults removes the defaults that the API writes from a service.
func dropDefaults(spec map[string]any) {
	args, _ := spec["serviceArguments"].(map[string]any)
	for name, value := range args {
		_, isText := value.(string) // the text "0" is no default
		if value == false || value == "" || !isText && fmt.Sprint(value) == "0" {
			delete(args, name)
		}
	}
}

// readWords replaces the words of an object with the numbers that the server accepts.
func readWords(o *manifest.Object) *manifest.Error {
	for _, w := range wordedProperties() {
		if w.kind != o.Kind || w.number == nil {
			continue
		}
		spec, err := specOf(o.Spec)
		if err != nil {
			return nil // the server reports the error
		}
		group, _ := member(spec, w.group).(map[string]any)
		word, ok := member(group, w.property).(string)
		if !ok {
			continue
		}
		n, err := w.number(word)
		if err != nil {
			return &manifest.Error{Position: o.Locate(w.group + "." + w.property), Text: err.Error()}
		}
		for name := range group {
			if strings.EqualFold(name, w.property) {
				group[name] = n
			}
		}
		if o.Spec, err = json.Marshal(spec); err != nil {
			return nil
		}
	}
	return nil
}

// member returns a property by its name, in any case.
func member(of map[string]any, name string) any {
	for n, v := range of {
		if strings.EqualFold(n, name) {
			return v
		}
	}
	return nil
}
