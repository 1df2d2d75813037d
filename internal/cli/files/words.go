package files

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"loxilb/internal/lb"
	"loxilb/internal/manifest"
)

// worded is a property that the REST contract has as a number, and that files write as a word.
type worded struct {
	kind, group, property string
	renamed               string // what files call it; "": as the contract does
	word                  func(n int) string
	number                func(word string) (int, error) // nil: the server takes the word
}

func wordedProperties() []worded {
	attachment := func(kind string) worded {
		return worded{kind, "targetObject", "attachment", "", func(n int) string { return lb.AttachTo(n).String() }, func(word string) (int, error) {
			to, err := lb.ParseAttachTo(word)
			return int(to), err
		}}
	}
	return []worded{
		{manifest.Loadbalancer, "serviceArguments", "mode", "", func(n int) string { return lb.Mode(n).String() }, nil},
		{manifest.Loadbalancer, "serviceArguments", "sel", "select", func(n int) string { return lb.Algorithm(n).String() }, nil},
		{manifest.Policy, "policyInfo", "type", "", func(n int) string { return lb.PolicerTypeWord(n == 1) }, func(word string) (int, error) {
			one, err := lb.ParsePolicerType(word)
			if one {
				return 1, err
			}
			return 0, err
		}},
		attachment(manifest.Policy),
		{manifest.Mirror, "mirrorInfo", "type", "", func(n int) string { return lb.MirrorType(n).String() }, func(word string) (int, error) {
			kind, err := lb.ParseMirrorType(word)
			return int(kind), err
		}},
		attachment(manifest.Mirror),
		{manifest.Firewall, "ruleArguments", "protocol", "", func(n int) string { return lb.RuleProtocolWord(uint8(n)) }, ruleProtocol},
		{manifest.Firewall, "ruleArguments", "maxProtocol", "", func(n int) string { return lb.RuleProtocolWord(uint8(n)) }, ruleProtocol},
	}
}

func ruleProtocol(word string) (int, error) {
	n, err := lb.ParseRuleProtocol(word)
	return int(n), err
}

// inWords is a document of an object with words for numbers, and without what a service has by default anyway.
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
		n, err := strconv.ParseUint(fmt.Sprint(group[w.property]), 10, 8)
		if err != nil {
			continue // absent, or a word already
		}
		word := w.word(int(n))
		if word == "" || word == strconv.FormatUint(n, 10) || strings.Contains(word, "(") {
			continue // of a server that is newer than this program
		}
		delete(group, w.property)
		group[cmp.Or(w.renamed, w.property)] = word
	}
	if kind == manifest.Loadbalancer {
		dropDefaults(spec)
	}
}

// dropDefaults takes out of a service what the API writes though it says nothing.
func dropDefaults(spec map[string]any) {
	args, _ := spec["serviceArguments"].(map[string]any)
	for name, value := range args {
		if value == false || value == "" || fmt.Sprint(value) == "0" {
			delete(args, name)
		}
	}
}

// readWords replaces the words of an object by the numbers that the server takes.
func readWords(o *manifest.Object) *manifest.Error {
	for _, w := range wordedProperties() {
		if w.kind != o.Kind || w.number == nil {
			continue
		}
		spec, err := specOf(o.Spec)
		if err != nil {
			return nil // the server says what is wrong with it
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

// member is a property by its name, in any case.
func member(of map[string]any, name string) any {
	for n, v := range of {
		if strings.EqualFold(n, name) {
			return v
		}
	}
	return nil
}
