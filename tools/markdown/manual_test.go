package markdown

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestManual converts a page with every kind of Markdown element.
func TestManual(t *testing.T) {
	t.Parallel()
	got := Manual("loxilb-x",
		"<!-- Generated. -->\n\n# Words of x\n\nAll of *them*,\nfor `a-b`.\n\n## More\n\n- `a`, `b`: the first\n  two\n- plain, see "+
			"[here](x.md)\n\n### Less\n\n- `c` *differs*: how\n\n.end\n")
	want := `.\" Generated.
.TH LOXILB-X 7 "" loxilb "Reference"
.SH NAME
loxilb\-x \- words of x
.SH DESCRIPTION
.PP
All of \fIthem\fR, for \fBa\-b\fR.
.SH More
.TP
\fBa\fR, \fBb\fR
the first two
.TP
plain, see here
.SS Less
.TP
\fBc\fR \fIdiffers\fR
how
.PP
\&.end
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
}
