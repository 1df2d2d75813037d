package election

import "testing"

// TestMessage checks that claims survive the wire, and that other data is no message.
func TestMessage(t *testing.T) {
	t.Parallel()
	m := Message{Restart: RestartTime, Entries: []Entry{{InstanceHash("a"), Master, 7, true}, {InstanceHash("b"), Declines, 255, false}}}
	data := m.Append(nil)
	got, ok := Parse(data)
	if !ok || got.Restart != m.Restart || len(got.Entries) != 2 || got.Entries[0] != m.Entries[0] || got.Entries[1] != m.Entries[1] {
		t.Errorf("%+v", got)
	}
	for i := range data {
		if _, ok := Parse(data[:i]); ok {
			t.Errorf("%d bytes are a message", i)
		}
	}
}
