package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// YAML writes JSON objects as one YAML document each, so Read returns the same objects.
func YAML(objects []json.RawMessage) ([]byte, error) {
	var out bytes.Buffer
	for i, object := range objects {
		d := json.NewDecoder(bytes.NewReader(object))
		d.UseNumber()
		node, err := nodeOf(d)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		e := yaml.NewEncoder(&out)
		e.SetIndent(2)
		if err := e.Encode(node); err != nil {
			return nil, err
		}
		if err := e.Close(); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// nodeOf returns the next value of JSON, members in their order.
func nodeOf(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if v == '{' {
			n.Kind = yaml.MappingNode
		}
		for d.More() { // names of members are values too
			part, err := nodeOf(d)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, part)
		}
		_, err := d.Token()
		return n, err
	case string:
		return textNode(v), nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatBool(v)}, nil
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
	}
	return nil, fmt.Errorf("%v is not a JSON value", token)
}

// textNode quotes text that would be parsed as another type.
func textNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: s}
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			n.Style = yaml.DoubleQuotedStyle // which has escapes
		}
	}
	if n.ShortTag() != "!!str" {
		n.Style = yaml.DoubleQuotedStyle
	}
	n.Tag = "!!str"
	return n
}
