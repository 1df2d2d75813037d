package httpapi

import (
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
)

// postSlowly posts a service whose body begins so, and returns when that much has been read. The
// status goes to ended once the body has ended.
func (b *bench) postSlowly(t *testing.T, start string, ended chan<- int) *io.PipeWriter {
	t.Helper()
	pr, pw := io.Pipe()
	go func() {
		r := httptest.NewRequest("POST", "http://127.0.0.1:11111"+BaseURL+"/config/loadbalancer", pr)
		r = r.WithContext(transport.WithPeer(r.Context(), b.peer))
		w := httptest.NewRecorder()
		b.http.ServeHTTP(w, r)
		ended <- w.Code
	}()
	if _, err := io.WriteString(pw, start); err != nil {
		t.Fatal(err)
	}
	return pw
}

// Of large bodies one is read at a time; small ones do not wait for it.
func TestLargeBodiesAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.BodyWait = 50 * time.Millisecond })
	ended := make(chan int, 1)
	large := strings.Repeat(" ", rest.MaxSmall) + demo
	pw := b.postSlowly(t, large, ended)
	if w := b.post(large); w.Code != 503 || !strings.Contains(problemOf(t, w).Message, "more than 4 MiB") {
		t.Errorf("a second large one: %d %s", w.Code, w.Body)
	}
	b.mustPost(kube("", `"Monitor":false`, `"Monitor":true`))
	if err := pw.Close(); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != 200 {
		t.Errorf("the first one: %d", code)
	}
	if w := b.post(large); w.Code != 409 {
		t.Errorf("after it: %d %s", w.Code, w.Body)
	}
}

// Large bodies that wait for another one keep small ones from nothing, and no more of them wait
// than there may be.
func TestLargeBodiesWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.BodyWait = time.Minute })
	ended := make(chan int, rest.MaxBodies+1)
	spaces := strings.Repeat(" ", rest.MaxSmall)
	all := []*io.PipeWriter{b.postSlowly(t, spaces+" ", ended)} // the one that is read
	for range rest.MaxBodies {
		all = append(all, b.postSlowly(t, spaces, ended))
	}
	b.mustPost(demo)
	for len(b.api.Objects.Reader.WaitingBodies) < rest.MaxBodies {
		runtime.Gosched()
	}
	if w := b.post(spaces + demo); w.Code != 503 || !strings.Contains(problemOf(t, w).Message, "more than 4 MiB") {
		t.Errorf("one more: %d %s", w.Code, w.Body)
	}
	for _, pw := range all {
		go func() {
			_, _ = io.WriteString(pw, demo)
			_ = pw.Close()
		}()
	}
	for range all {
		if code := <-ended; code != 409 {
			t.Errorf("after a wait: %d", code)
		}
	}
}

// So many requests are read at once; the next one waits, and gives up.
func TestBodiesAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.BodyWait = 50 * time.Millisecond })
	var slow []*io.PipeWriter
	ended := make(chan int, rest.MaxBodies)
	for range rest.MaxBodies {
		slow = append(slow, b.postSlowly(t, "{", ended))
	}
	w := b.post(demo)
	if e := problemOf(t, w); w.Code != 503 || !strings.Contains(e.Message, "8 other requests with a body") {
		t.Errorf("%d %+v", w.Code, e)
	}
	if len(b.list()) != 0 {
		t.Error("a request without a body waited, or the refused one was done")
	}
	_ = slow[0].Close()
	if code := <-ended; code != 400 {
		t.Errorf("a body that broke off: %d", code)
	}
	b.mustPost(demo)
	for _, pw := range slow[1:] {
		_ = pw.Close()
		<-ended
	}
}
