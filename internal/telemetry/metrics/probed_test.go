package metrics

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"loxilb/internal/control/desired"
	"loxilb/internal/lb/report"
)

// walked counts iterations over the probed endpoints.
type walked struct {
	fake
	walks *int
}

func (w walked) Endpoints(yield func(*report.EndpointHealth) bool) {
	*w.walks++
	w.fake.Endpoints(func(e *report.EndpointHealth) bool {
		e.Probe.CA = "/ca"
		return yield(e)
	})
}

// TestOneWalk checks that a scrape without series of endpoints iterates once over the probed
// endpoints.
func TestOneWalk(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	st, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close() //nolint:errcheck // of a test
	var walks int
	var files []CertificateFile
	m, err := New(st, walked{walks: &walks}, Options{Certificates: func(probes []CertificateFile) []Certificate {
		files = probes
		return nil
	}}, log)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	page, _ := io.ReadAll(w.Result().Body)
	if walks != 1 || !slices.Equal(files, []CertificateFile{{"probe-ca", "/ca"}}) {
		t.Errorf("%d walks, files %v", walks, files)
	}
	if n := strings.Count(string(page), "\nloxilb_endpoint_up{"); n != 1 {
		t.Errorf("%d endpoints are down:\n%s", n, page)
	}
}
