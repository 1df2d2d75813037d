package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// rule is an object of a kind that files of version 2 cannot have. Rules are sorted by number.
type rule struct {
	Number int    `json:"number"`
	Item   string `json:"for"`
	Note   string `json:"note,omitempty"` // since format 2
}

func (r rule) id() ID { return ID{"rule", strconv.Itoa(r.Number)} }

// ruleKind returns the kind of a loxilb that knows rules up to a format.
func ruleKind(format int) Kind[rule] {
	return Kind[rule]{
		Name: "rule",
		Key:  func(r rule) string { return strconv.Itoa(r.Number) },
		Sort: func(key string) (string, bool) {
			n, err := strconv.Atoi(key)
			return fmt.Sprintf("%08d", n), err == nil && strconv.Itoa(n) == key
		},
		Equal:  func(a, b rule) bool { return a == b },
		Format: format,
		Encode: func(r rule) (int, []byte, error) {
			needs := 1
			if r.Note != "" {
				needs = 2
			}
			b, err := json.Marshal(r)
			return needs, b, err
		},
		Decode: func(_ int, object []byte) (r rule, err error) {
			if err = decodeStrict(object, &r); err == nil && r.Number < 0 {
				err = errors.New("its number is negative")
			}
			return r, err
		},
		Indexes: []Index[rule]{{Name: "item", Values: func(r rule) []string { return []string{r.Item, "any"} }}},
		Check: func(_, after *Snapshot, changed []ID) error {
			for _, id := range changed {
				for _, t := range after.tables {
					if rules, ok := t.(Table[rule]); ok && id.Kind == "item" {
						for r := range rules.Find(after, "item", id.Key) {
							if _, there := after.Meta(id); !there {
								return fmt.Errorf("item %s has rule %d", id.Key, r.Number)
							}
						}
					}
				}
			}
			return nil
		},
	}
}

func rules(s *Snapshot) Table[rule] { return s.tables[1].(Table[rule]) }

func putRules(list ...rule) func(*Tx) error {
	return func(tx *Tx) error {
		for _, one := range list {
			if err := rules(tx.base).Put(tx, one); err != nil {
				return err
			}
		}
		return nil
	}
}
