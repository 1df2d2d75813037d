package packet

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
)

// sharedMember is a member of a row that all CPUs share.
type sharedMember struct{ table, row, member string }

// sharedMemory has the members that packets of any connection, on any CPU, may write. It omits the
// rows and locks of the connection table, memory per CPU, and members that nearly always have the
// value already: paths, location map and wakes.
type sharedMemory map[sharedMember]any

// sharedRows is the maximum number of services, and of endpoints, of a test.
const sharedRows = 64

func readShared(c *loader.Collection) (sharedMemory, error) {
	m := sharedMemory{}
	for _, err := range []error{
		addArray[bpf.TcServiceState](m, "service_states", c.Maps.ServiceStates, sharedRows),
		addArray[bpf.TcHalfOpen](m, "half_opens", c.Maps.HalfOpens, 1),
		addArray[bpf.TcTableState](m, "table_states", c.Maps.TableStates, 1),
		addArray[bpf.TcKnownSet](m, "known_clients", c.Maps.KnownClients, rows.All),
		addSegments[bpf.TcEndpointState](m, "endpoint_states", c.EndpointStates.Shared),
		addSegments[bpf.TcHandshakeCounts](m, "handshakes", c.Handshakes.Shared),
		addHash[bpf.TcSnatPair, bpf.TcSnatUsage](m, "snat_usages", c.SNATUsages),
		addHash[bpf.TcPersistKey, bpf.TcPersistEntry](m, "persists", c.Persists),
		addHash[bpf.TcLimitKey, bpf.TcLimitRow](m, "limited_clients", c.LimitedClients),
		addVariable[[bpf.TcSampleLayoutOUTCOME_ROWS]bpf.TcEndpointOutcomes](m, "outcomes", c.Variables.Outcomes),
		addVariable[[bpf.TcSampleLayoutSAMPLES]bpf.TcConnectionSample](m, "samples", c.Variables.Samples),
		addVariable[bpf.TcReclaimPass](m, "reclaim_pass", c.Variables.ReclaimPass),
		addVariable[[1024]uint64](m, "port_pressures", c.Variables.PortPressures),
		addVariable[uint32](m, "port_pressure_until", c.Variables.PortPressureUntil),
		addVariable[bpf.TcSurge](m, "challenge_surge", c.Variables.ChallengeSurge),
		addVariable[bpf.TcSurge](m, "foreign_surge", c.Variables.ForeignSurge),
	} {
		if err != nil {
			return nil, fmt.Errorf("read shared memory: %w", err)
		}
	}
	return m, nil
}

func addArray[V comparable](m sharedMemory, table string, from *ebpf.Map, limit int) error {
	return rows.EachBatch(from, limit, func(ids []uint32, list []V) { addRows(m, table, ids, list) })
}

func addSegments[V comparable](m sharedMemory, table string, from *rows.Array) error {
	return rows.EachOf(from, sharedRows, func(ids []uint32, list []V) { addRows(m, table, ids, list) })
}

func addRows[V comparable](m sharedMemory, table string, ids []uint32, list []V) {
	var none V
	for i := range list {
		if list[i] != none {
			m.add(table, fmt.Sprint(ids[i]), "", reflect.ValueOf(list[i]))
		}
	}
}

// addHash adds the rows of a hash that is created on demand. The existence of a row counts as a
// member, unless rows are written as a whole.
func addHash[K comparable, V any](m sharedMemory, table string, from *rows.Array) error {
	if from.Table() == nil {
		return nil
	}
	return rows.Each(from.Table(), func(key K, value V) {
		at := sharedMember{table, fmt.Sprint(key), "row"}
		if entry, ok := any(value).(bpf.TcPersistEntry); ok {
			m[at] = entry
			return
		}
		m[at] = true
		m.add(table, fmt.Sprint(key), "", reflect.ValueOf(value))
	})
}

func addVariable[V any](m sharedMemory, name string, from *ebpf.Variable) error {
	value := new(V)
	if err := from.Get(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m.add(name, "", "", reflect.ValueOf(value).Elem())
	return nil
}

// add adds the members of a row that are not zero. A token bucket counts as one word, and a sample
// is written as a whole.
func (m sharedMemory) add(table, row, member string, v reflect.Value) {
	switch kind := v.Interface().(type) {
	case bpf.TcTokenBucket, bpf.TcConnectionSample:
		m.set(table, row, member, kind)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				m.add(table, row, strings.TrimPrefix(member+"."+cName(f.Name), "."), v.Field(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			if !v.Index(i).IsZero() {
				m.add(table, fmt.Sprintf("%s[%d]", row, i), member, v.Index(i))
			}
		}
	default:
		m.set(table, row, member, v.Interface())
	}
}

func (m sharedMemory) set(table, row, member string, value any) {
	if !reflect.ValueOf(value).IsZero() {
		m[sharedMember{table, row, member}] = value
	}
}

// cName returns the name in C of a member in Go.
func cName(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// writtenSince lists the members that have changed, once for each row.
func (m sharedMemory) writtenSince(before sharedMemory) (written []string) {
	for at, now := range m {
		if now != before[at] {
			written = append(written, at.String())
		}
	}
	for at := range before {
		if _, has := m[at]; !has {
			written = append(written, at.String())
		}
	}
	slices.Sort(written)
	return written
}

func (at sharedMember) String() string { return strings.TrimSuffix(at.table+"."+at.member, ".") }
