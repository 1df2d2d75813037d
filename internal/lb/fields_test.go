package lb

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestEveryMemberHasAField checks that setting a member of a service changes the value of exactly
// one field.
func TestEveryMemberHasAField(t *testing.T) {
	t.Parallel()
	checkMembers[Service](t, append(KeyFields(), Fields()...))
	checkMembers[Endpoint](t, EndpointFields())
	checkMembers[EndpointProbe](t, EndpointProbeFields())
}

func checkMembers[T any](t *testing.T, fields []Field[T]) {
	t.Helper()
	var plain T
	seen := make(map[string]string)
	for _, m := range membersOf(reflect.TypeFor[T]()) {
		changed := plain
		fill(t, reflect.ValueOf(&changed).Elem().FieldByIndex(m.Index))
		var found []string
		for _, f := range fields {
			if !f.Same(&plain, &changed) {
				found = append(found, f.Name)
				if f.IsDefault(&changed) {
					t.Errorf("%s: field %s takes %v for its default", m.Name, f.Name, changed)
				}
				var copied T
				if f.Copy(&copied, &changed); !reflect.DeepEqual(copied, changed) {
					t.Errorf("%s: field %s copies %v as %v", m.Name, f.Name, changed, copied)
				}
			}
		}
		if len(found) != 1 {
			t.Errorf("member %s of %T is in fields %v, want one", m.Name, plain, found)
			continue
		}
		if other, ok := seen[found[0]]; ok {
			t.Errorf("field %s has members %s and %s", found[0], other, m.Name)
		}
		seen[found[0]] = m.Name
	}
	if len(seen) != len(fields) {
		t.Errorf("%d of %d fields of %T have a member", len(seen), len(fields), plain)
	}
}

// membersOf returns the members of a struct, and those of a probe in it separately.
func membersOf(t reflect.Type) (list []reflect.StructField) {
	for _, m := range reflect.VisibleFields(t) {
		switch {
		case m.Anonymous:
		case m.Type == reflect.TypeFor[Probe]():
			for _, of := range membersOf(m.Type) {
				of.Index = append(slices.Clone(m.Index), of.Index...)
				list = append(list, of)
			}
		default:
			list = append(list, m)
		}
	}
	return list
}

// fill gives a member a value other than its zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.MustParseAddr("10.0.0.1")))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.MustParsePrefix("10.0.0.0/8")))
		return
	case Endpoint:
		v.Set(reflect.ValueOf(Endpoint{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Weight: 1}))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC)))
		return
	case StatusRange:
		v.Set(reflect.ValueOf(StatusRange{200, 299}))
		return
	case QUICConfig:
		v.Set(reflect.ValueOf(QUICConfig{Number: 1}))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(time.Second))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	default:
		t.Fatalf("this test needs another value of a %s", v.Type())
	}
}

// TestFieldNames checks that names are unique.
func TestFieldNames(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	once := func(kind, name string) {
		if name != "" && seen[kind+name] {
			t.Errorf("%s %q is given twice", kind, name)
		}
		seen[kind+name] = true
	}
	var positions []int
	since := map[int]int{} // by position
	for _, f := range append(KeyFields(), Fields()...) {
		once("name", f.Name)
		once("name", f.Also)
		once("flag", f.Flag)
		once("property", f.Property)
		once("text", f.Text)
		once("record", f.Record)
		if f.Property == "" || (f.Flag == "") != (f.Help == "") {
			t.Errorf("%s has no property, a flag without help, or help without a flag", f.Name)
		}
		if f.Since != 0 && f.Since <= firstRecordFormat {
			t.Errorf("%s is of format %d, which builds without it read", f.Name, f.Since)
		}
		if f.Record != "" {
			positions = append(positions, f.Position)
			since[f.Position] = f.Since
		}
	}
	slices.Sort(positions)
	for i, p := range positions {
		if p != i+1 {
			t.Fatalf("the positions in a record are %v, want each once from 1", positions)
		}
		if since[p] < since[i] {
			t.Errorf("the field of position %d has Since %d, less than that of the previous one, %d", p, since[p], since[i])
		}
	}
}

// randomService returns a service with a random value in every field, from the field's own words.
// It need not be valid.
func randomService(r *rand.Rand) Service {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	addr := func() string { return pick("10.0.0.1", "10.0.0.2", "2001:db8::1", "192.168.7.9") }
	var s Service
	set := func(fields []Field[Service]) {
		for _, f := range fields {
			var v any
			switch old := f.form.get(&s).(type) {
			case bool:
				v = r.IntN(2) == 0
			case int:
				v = r.IntN(200)
				switch f.Name {
				case FieldPersistPrefix, FieldClientPrefix:
					v = r.IntN(129)
				case FieldProbeRetries, FieldProbeRise:
					v = r.IntN(MaxProbeCount + 1)
				case FieldPrepend:
					v = r.IntN(MaxPrepend + 1)
				}
			case []string:
				list := old[:0]
				for range r.IntN(4) {
					switch f.Name {
					case FieldEndpoints:
						list = append(list, pick("10.1.0.1:80", "[2001:db8::2]:8080-8090:0", "10.1.0.2:443:65535", "10.1.0.3:443@2#0a1b"))
					case FieldQUIC:
						list = append(list, pick("0", "6", "1:8:8f95f09245765f80256934e50c66207f"))
					case FieldProbeStatuses:
						list = append(list, pick("200", "200-299", "404"))
					case FieldCommunities:
						list = append(list, pick("no-export", "65000:100", "65535:0"))
					case FieldSources, FieldDenied:
						list = append(list, pick("10.0.0.0/8", "10.1.2.3", "2001:db8::/32"))
					default:
						list = append(list, addr())
					}
				}
				v = list
			case string:
				v = pick("", "web", `a "b" c`, "d n s\t", "ü=1,2")
				switch f.Name {
				case FieldVIP:
					v = addr()
				case FieldAggregate:
					v = pick("", "10.0.0.0/8", "2001:db8::/32")
				case FieldOwnerTime:
					v = pick("", "2026-01-31T23:59:59Z")
				case FieldProbeInterval, FieldProbeWait, FieldSlowStart:
					v = pick("", "500ms", "2s", "1h0m0s")
				}
				if c := f.Choices(); len(c) > 0 {
					v = c[r.IntN(len(c))].Word
				}
			}
			if err := f.SetValue(&s, v); err != nil {
				panic(err)
			}
		}
	}
	set(KeyFields())
	set(Fields())
	return s
}

// TestFieldsRoundTrip checks that fields are read back as they were written: as text, as records,
// and value by value as in REST.
func TestFieldsRoundTrip(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 9))
	base, changed := mustParse(t, "10.0.0.1:80/tcp mode=fullnat select=persist endpoints=10.1.0.1:8080"), 0
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	for range rounds {
		s := randomService(r)
		if again, err := ParseService(s.String()); err != nil || !again.Equal(s) {
			t.Fatalf("%s came back as %s, %v", s, again, err)
		}
		var byValue Service
		for _, f := range append(KeyFields(), Fields()...) {
			v := f.Value(&s)
			if n, ok := v.(int); ok && f.Numbered {
				v = f.Choices()[slices.IndexFunc(f.Choices(), func(c Choice) bool { return c.Number == n })].Word
			}
			if err := f.SetValue(&byValue, v); err != nil {
				t.Fatal(err)
			}
		}
		if !byValue.Equal(s) || !s.Clone().Equal(s) {
			t.Fatalf("%s came back as %s, its copy is %s", s, byValue, s.Clone())
		}
		mixed := base.Clone()
		for _, f := range append(KeyFields(), Fields()...) {
			if before := mixed.Clone(); r.IntN(2) == 0 {
				if f.Copy(&mixed, &s); mixed.Validate() != nil {
					mixed = before
				}
			}
		}
		s = mixed
		if !s.Equal(base) {
			changed++
		}
		format, data, err := NewSchema().MarshalRecord(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := NewSchema().UnmarshalRecord(format, data)
		if err != nil || !again.Equal(s) {
			t.Fatalf("%s came back as %s, %v", s, again, err)
		}
	}
	if changed < rounds/2 {
		t.Errorf("only %d records differ from the base", changed)
	}
}

// TestEqualSeesEveryField checks that a change of any one field makes two services differ.
func TestEqualSeesEveryField(t *testing.T) {
	t.Parallel()
	base := mustParse(t, "10.0.0.1:80/tcp endpoints=192.168.1.10:8080")
	for _, f := range append(KeyFields(), Fields()...) {
		other := base.Clone()
		for n := 0; f.Same(&base, &other); n++ {
			changed := randomService(rand.New(rand.NewPCG(7, uint64(n))))
			f.Copy(&other, &changed)
		}
		if base.Equal(other) || other.Equal(base) {
			t.Errorf("%s: %s and %s are equal", f.Name, base, other)
		}
	}
}

func BenchmarkFields(b *testing.B) {
	s, o := mustParse(b, "10.0.0.1:80/tcp endpoints=192.168.1.10:8080"), mustParse(b, "10.0.0.1:80/tcp endpoints=192.168.1.10:8080")
	s.Endpoints, o.Endpoints = endpoints(10), endpoints(10)
	c := NewSchema()
	b.Run("Equal", func(b *testing.B) {
		for b.Loop() {
			if !c.Equal(s, o) {
				b.Fatal("equal services differ")
			}
		}
	})
	b.Run("Clone", func(b *testing.B) {
		for b.Loop() {
			_ = c.Clone(s)
		}
	})
	b.Run("record", func(b *testing.B) {
		for b.Loop() {
			format, data, err := c.MarshalRecord(s)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := c.UnmarshalRecord(format, data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
