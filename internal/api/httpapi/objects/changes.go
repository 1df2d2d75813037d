package objects

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/control/store"
)

// maxFields bounds the properties listed for one changed object, and maxValue the length of a
// value.
const (
	maxFields = 100
	maxValue  = 200
)

// changes returns the differences between two states, in the order of application. With detail, it
// lists properties and affected connections.
func (a *API) changes(before, after *store.Snapshot, ids []store.ID, detail bool) []v1.Change {
	out := []v1.Change{}
	for i := range a.kinds {
		k := &a.kinds[i]
		for _, id := range ids {
			if id.Kind == k.Name {
				out = append(out, k.change(before, after, id, detail))
			}
		}
	}
	for _, id := range ids {
		if a.kindOfID(id) == nil {
			out = append(out, v1.Change{Kind: id.Kind, Name: id.Key, Action: changeOf(before, after, id)})
		}
	}
	return out
}

func changeOf(before, after *store.Snapshot, id store.ID) string {
	_, was := before.Meta(id)
	_, is := after.Meta(id)
	switch {
	case !was:
		return "add"
	case !is:
		return "remove"
	}
	return "change"
}

func (k *Kind) change(before, after *store.Snapshot, id store.ID, detail bool) v1.Change {
	c := v1.Change{Kind: k.Document, Name: id.Key, Action: changeOf(before, after, id)}
	if !detail {
		return c
	}
	if c.Action == "change" {
		fields := differences(k.Show(before, id.Key), k.Show(after, id.Key))
		c.Fields = fields[:min(len(fields), maxFields)]
		c.MoreFields = len(fields) - len(c.Fields)
	}
	if k.Live != nil {
		c.Connections, c.Cut = k.Live(before, after, id.Key)
	}
	return c
}

// differences returns the properties in which two objects differ, by their paths, in order.
func differences(before, after any) []v1.FieldChange {
	was, is := flattened(before), flattened(after)
	var list []v1.FieldChange
	for path, value := range was {
		if other, ok := is[path]; !ok || other != value {
			list = append(list, v1.FieldChange{Field: path, Before: value, After: other})
		}
	}
	for path, value := range is {
		if _, ok := was[path]; !ok {
			list = append(list, v1.FieldChange{Field: path, After: value})
		}
	}
	slices.SortFunc(list, func(a, b v1.FieldChange) int { return strings.Compare(a.Field, b.Field) })
	return list
}

// flattened returns an object as paths and values.
func flattened(object any) map[string]string {
	out := map[string]string{}
	data, err := json.Marshal(object)
	var v any
	if err != nil || json.Unmarshal(data, &v) != nil {
		return out // objects of the API can be encoded
	}
	flatten(out, "", v)
	return out
}

func flatten(out map[string]string, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, part := range v {
			flatten(out, strings.TrimPrefix(at+"."+name, "."), part)
		}
	case []any:
		for i, part := range v {
			flatten(out, at+"["+label(i, part)+"]", part)
		}
	default:
		text := fmt.Sprint(v)
		if s, ok := v.(string); !ok || s != "" {
			out[at] = text[:min(len(text), maxValue)]
		}
	}
}

// label names an element of a list by its key, if known, so inserting one does not make all
// others look changed.
func label(index int, v any) string {
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		for _, name := range []string{"prefix", "secondaryIP"} {
			if s, ok := v[name].(string); ok {
				return s
			}
		}
		if ip, ok := v["endpointIP"].(string); ok {
			return fmt.Sprint(ip, " ", v["targetPort"])
		}
	}
	return fmt.Sprint(index)
}
