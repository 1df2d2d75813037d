package rows

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

// Comparison compares a map with the rows that it should have.
type Comparison[K, V comparable] struct {
	Table string
	Map   *ebpf.Map // nil: the map does not exist while there is no row
	Want  map[K]V
	Name  func(K) string // describes a row
	Mask  func(*V)       // clears the members of a row that packets change; nil: none
	Each  func(func(K, V)) error
	Put   func(K, V) error // nil: like a hash
	// Others reports rows that are not in Want and stay; nil: none.
	Others func(K, V) bool
}

// Check compares the rows; with repair, it writes differing ones again.
func (s *Comparison[K, V]) Check(repair bool) report.Compared {
	out := report.Compared{Table: s.Table, Rows: len(s.Want)}
	if s.Map == nil && s.Each == nil && len(s.Want) == 0 {
		return out
	}
	missing := make(map[K]bool, len(s.Want))
	for k := range s.Want {
		missing[k] = true
	}
	stale := map[K]bool{}
	differ := func(k K, what string) {
		out.Differences = append(out.Differences, report.Difference{Table: s.Table, Row: s.Name(k), What: what})
	}
	wrong := map[K]bool{} // a hash may list a row twice
	err := s.each(func(k K, have V) {
		want, wanted := s.Want[k]
		delete(missing, k)
		switch {
		case !wanted && !stale[k] && (s.Others == nil || !s.Others(k, have)):
			stale[k] = true
			differ(k, "exists, but should not")
		case wanted && !wrong[k] && s.masked(have) != s.masked(want):
			wrong[k] = true
			differ(k, Unequal(s.masked(have), s.masked(want)))
		}
	})
	if err != nil {
		out.Err = fmt.Errorf("read %s: %w", s.Table, err)
		return out
	}
	for k := range missing {
		wrong[k] = true
		differ(k, "is missing")
	}
	if repair {
		out.Err = s.repair(wrong, stale)
	}
	return out
}

func (s *Comparison[K, V]) masked(v V) V {
	if s.Mask != nil {
		s.Mask(&v)
	}
	return v
}

func (s *Comparison[K, V]) each(f func(K, V)) error {
	switch {
	case s.Each != nil:
		return s.Each(f)
	case s.Map == nil:
		return nil
	case s.Map.Type() == ebpf.Hash:
		return EachBatch(s.Map, All, func(keys []K, values []V) {
			for i, k := range keys {
				f(k, values[i])
			}
		})
	}
	return Each(s.Map, f)
}

func (s *Comparison[K, V]) repair(wrong, stale map[K]bool) error {
	var errs []error
	put := s.Put
	if put == nil {
		put = func(k K, v V) error { return s.Map.Put(k, v) }
	}
	for k := range wrong {
		errs = append(errs, put(k, s.Want[k]))
	}
	for k := range stale {
		if s.Put != nil {
			var none V
			errs = append(errs, put(k, none))
		} else if err := Delete(s.Map, k); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write %s: %w", s.Table, err)
	}
	return nil
}

// Variable is a variable that programs read, and its value.
type Variable struct {
	Name string
	In   *ebpf.Variable
	Want uint32
}

// CheckVariables compares the variables; with repair, it writes differing ones again.
func CheckVariables(repair bool, list ...Variable) report.Compared {
	out := report.Compared{Table: "variables", Rows: len(list)}
	for _, v := range list {
		var have uint32
		if err := v.In.Get(&have); err != nil {
			out.Err = errors.Join(out.Err, fmt.Errorf("read variable %s: %w", v.Name, err))
			continue
		}
		if have == v.Want {
			continue
		}
		out.Differences = append(out.Differences, report.Difference{Table: out.Table, Row: v.Name, What: Unequal(have, v.Want)})
		if repair {
			out.Err = errors.Join(out.Err, v.In.Set(v.Want))
		}
	}
	return out
}

// Unequal describes how two values differ: for rows, by members.
func Unequal(have, want any) string {
	h, w := reflect.ValueOf(have), reflect.ValueOf(want)
	if h.Kind() != reflect.Struct || h.Type() == reflect.TypeFor[bpf.TcIpAddr]() {
		return fmt.Sprintf("is %s, and should be %s", text(h), text(w))
	}
	var parts []string
	for i := range h.NumField() {
		name := h.Type().Field(i).Name
		if !h.Type().Field(i).IsExported() || h.Field(i).Equal(w.Field(i)) {
			continue
		}
		parts = append(parts, fmt.Sprintf("has %s %s, and should have %s", name, text(h.Field(i)), text(w.Field(i))))
	}
	const most = 3
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("and %d more members differ", len(parts)-most))
	}
	return strings.Join(parts, "; ")
}

// text formats a value; addresses as users write them.
func text(v reflect.Value) string {
	if a, ok := reflect.TypeAssert[bpf.TcIpAddr](v); ok {
		if a == (bpf.TcIpAddr{}) {
			return "none"
		}
		return a.Netip().String()
	}
	if s := fmt.Sprintf("%v", v.Interface()); len(s) <= 40 {
		return s
	}
	return "another value"
}

// Numbered returns a function that names rows by their number.
func Numbered[K ~uint32 | ~uint64 | ~int](what string) func(K) string {
	return func(k K) string { return fmt.Sprintf("%s %d", what, k) }
}
