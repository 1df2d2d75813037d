package rows

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// TestGrow checks that arrays get the requested segments in order, and no more than fit.
func TestGrow(t *testing.T) {
	t.Parallel()
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 8}
	arrays := make([]*Array, 2)
	for i, most := range []uint32{50, 500} {
		outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: most, InnerMap: inner})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = outer.Close() }()
		arrays[i] = NewArray("test", outer, inner)
	}
	want := [2]int{}
	for _, more := range []int{1, 0, 7, 33, 100} {
		if err := Grow(more, arrays...); err != nil {
			t.Fatal(err)
		}
		for i, a := range arrays {
			want[i] = min(want[i]+more, a.MaxSegments())
			if len(a.Segments()) != want[i] {
				t.Fatalf("%d segments, want %d", len(a.Segments()), want[i])
			}
		}
	}
	for _, a := range arrays {
		for id := range uint32(a.Len()) {
			if err := a.Put(id, id); err != nil {
				t.Fatal(err)
			}
		}
		again := NewArray("test", a.outer, inner)
		if err := again.Adopt(); err != nil || len(again.Segments()) != len(a.Segments()) {
			t.Fatalf("%d segments are found again, %v; want %d", len(again.Segments()), err, len(a.Segments()))
		}
		for id := range uint32(a.Len()) {
			var row uint32
			if err := again.Lookup(id, &row); err != nil || row != id {
				t.Fatalf("row %d is %d, %v", id, row, err)
			}
		}
	}
}

// TestOutOfMemory checks that arrays that cannot grow keep no new segment, except those of earlier
// parts, and grow later.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	const most, part = 2 * releaseEvery, releaseEvery
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: most, InnerMap: inner})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = outer.Close() }()
	a := NewArray("test", outer, inner)
	for _, tc := range []struct{ lack, count, want int }{
		{40, 3, 3}, {40, 50, 3}, {part + 10, most, part + 3}, {0, most, most},
	} {
		a.noMemory = tc.lack
		err := a.GrowReleased(tc.count)
		if fails := tc.want < tc.count; errors.Is(err, unix.ENOMEM) != fails || !fails && err != nil {
			t.Errorf("growth to %d segments, with memory for %d: %v", tc.count, tc.lack, err)
		}
		if a.Count() != tc.want {
			t.Errorf("%d segments, want %d", a.Count(), tc.want)
		}
		exist := 0
		for i := range most {
			if m, err := a.Open(i); err == nil {
				exist++
				_ = Close(m)
			}
		}
		if exist != tc.want {
			t.Errorf("%d segments are in the outer map, want %d", exist, tc.want)
		}
	}
}

// TestReleased checks that closed segments still exist, continue with their contents, and are found
// by the next process.
func TestReleased(t *testing.T) {
	t.Parallel()
	const most = 2*releaseEvery + 100
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: most, InnerMap: inner})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = outer.Close() }()
	a := NewArray("test", outer, inner)
	for _, count := range []int{0, 3, 1, releaseEvery + 7, most + 5} {
		want := min(max(a.Count(), count), most)
		if err := a.GrowReleased(count); err != nil || a.Count() != want || len(a.Segments()) != 0 {
			t.Fatalf("%d segments, %d open, %v; want %d, none open", a.Count(), len(a.Segments()), err, want)
		}
		again := NewArray("test", outer, inner)
		if err := again.AdoptReleased(); err != nil || again.Count() != want {
			t.Fatalf("%d segments are found again, %v; want %d", again.Count(), err, want)
		}
	}
	m, err := a.Open(most - 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Open(most); err == nil {
		t.Error("a missing segment was opened")
	}
}

// TestReleasedWithGap checks that segments of a killed process after a gap are ignored, wherever
// the gap is. They are created again, and then none is missing.
func TestReleasedWithGap(t *testing.T) {
	t.Parallel()
	const most = 64
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	for _, gap := range []uint32{0, 1, 20, 31, 32, 33, most - 2} {
		outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: most, InnerMap: inner})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = outer.Close() }()
		if err := NewArray("test", outer, inner).GrowReleased(most); err != nil {
			t.Fatal(err)
		}
		if err := outer.Delete(gap); err != nil {
			t.Fatal(err)
		}
		a := NewArray("test", outer, inner)
		if err := a.AdoptReleased(); err != nil || a.Count() != int(gap) {
			t.Errorf("%d segments are found before a gap at %d, %v", a.Count(), gap, err)
		}
		if err := a.GrowReleased(most); err != nil {
			t.Fatal(err)
		}
		for i := range most {
			m, err := a.Open(i)
			if err != nil {
				t.Fatalf("after a gap at %d: %v", gap, err)
			}
			_ = m.Close()
		}
	}
}
