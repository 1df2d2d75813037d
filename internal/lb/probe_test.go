package lb

import "testing"

// Each type is read back from its word; nothing is auto.
func TestProbeTypeWords(t *testing.T) {
	t.Parallel()
	for _, c := range probeTypes() {
		if got, err := ParseProbeType(c.value.String()); err != nil || got != c.value {
			t.Errorf("%s came back as %s, %v", c.value, got, err)
		}
	}
	if got, err := ParseProbeType(""); err != nil || got != ProbeAuto {
		t.Errorf("nothing is %s, %v", got, err)
	}
	if _, err := ParseProbeType("telnet"); err == nil {
		t.Error("telnet is a type")
	}
	if one, more := (StatusRange{200, 200}).String(), (StatusRange{200, 299}).String(); one != "200" || more != "200-299" {
		t.Errorf("statuses are %s and %s", one, more)
	}
}
