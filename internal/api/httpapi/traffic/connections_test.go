package traffic

import (
	"testing"

	"loxilb/internal/api/listing"
	"loxilb/internal/lb/report"
)

// TestConnectionPageBounded checks that memory holds at most twice the rows of a page.
func TestConnectionPageBounded(t *testing.T) {
	t.Parallel()
	order, down, _ := connectionOrder("-bytes")
	list := connectionPage{window: listing.Window{Offset: 1_000_000, Limit: 100}, order: order, down: down}
	most := 0
	for i := range 100_000 {
		list.add(&report.Connection{Traffic: report.Traffic{Bytes: uint64(i)}})
		most = max(most, len(list.rows))
	}
	if most > 2*maxSorted || list.total != 100_000 || len(list.page()) != 0 {
		t.Errorf("%d rows are held, %d counted, %d shown", most, list.total, len(list.page()))
	}
	list.window.Offset = maxSorted - 1
	if page := list.page(); len(page) != 1 || page[0].Traffic.Bytes != 90_000 {
		t.Errorf("the last page: %+v", page)
	}
}
