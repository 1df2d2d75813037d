package httpapi_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/test/apitest"
	"loxilb/test/await"
)

// TestLargeBodiesAtOnce checks that large bodies are read one at a time, and that small ones do not
// wait for them.
func TestLargeBodiesAtOnce(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, func(o *httpapi.Options) { o.BodyWait = 50 * time.Millisecond })
	ended := make(chan int, 1)
	large := strings.Repeat(" ", rest.MaxSmall) + apitest.Demo
	pw := b.PostSlowly(t, large, ended)
	if w := b.Post(large); w.Code != 503 || !strings.Contains(apitest.ProblemOf(t, w).Message, "more than 4 MiB") {
		t.Errorf("a second large body gets %d %s, want code 503", w.Code, w.Body)
	}
	b.MustPost(apitest.Kube("", `"Monitor":false`, `"Monitor":true`))
	if err := pw.Close(); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != 200 {
		t.Errorf("the first large body gets code %d, want 200", code)
	}
	if w := b.Post(large); w.Code != 409 {
		t.Errorf("a large body after the first gets %d %s, want code 409", w.Code, w.Body)
	}
}

// TestLargeBodiesWait checks that waiting large bodies do not block small ones, and that their
// number is bounded.
func TestLargeBodiesWait(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, func(o *httpapi.Options) { o.BodyWait = time.Minute })
	ended := make(chan int, rest.MaxBodies+1)
	spaces := strings.Repeat(" ", rest.MaxSmall)
	all := []*io.PipeWriter{b.PostSlowly(t, spaces+" ", ended)} // the one being read
	for range rest.MaxBodies {
		all = append(all, b.PostSlowly(t, spaces, ended))
	}
	b.MustPost(apitest.Demo)
	await.True(t, time.Minute, "large bodies wait", func() bool {
		return len(b.API.Objects.Reader.WaitingBodies) == rest.MaxBodies
	})
	if w := b.Post(spaces + apitest.Demo); w.Code != 503 || !strings.Contains(apitest.ProblemOf(t, w).Message, "more than 4 MiB") {
		t.Errorf("a large body beyond the limit gets %d %s, want code 503", w.Code, w.Body)
	}
	for _, pw := range all {
		go func() {
			_, _ = io.WriteString(pw, apitest.Demo)
			_ = pw.Close()
		}()
	}
	for range all {
		if code := <-ended; code != 409 {
			t.Errorf("a body that waited gets code %d, want 409", code)
		}
	}
}

// TestBodiesAtOnce checks that the number of bodies read at once is bounded, and that the next one
// is refused after a wait.
func TestBodiesAtOnce(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, func(o *httpapi.Options) { o.BodyWait = 50 * time.Millisecond })
	var slow []*io.PipeWriter
	ended := make(chan int, rest.MaxBodies)
	for range rest.MaxBodies {
		slow = append(slow, b.PostSlowly(t, "{", ended))
	}
	w := b.Post(apitest.Demo)
	if e := apitest.ProblemOf(t, w); w.Code != 503 || !strings.Contains(e.Message, "8 other requests with a body") {
		t.Errorf(`got %d %+v, want code 503, "8 other requests with a body" in the message`, w.Code, e)
	}
	if len(b.List()) != 0 {
		t.Error("a request without a body was not answered, or the refused one was applied")
	}
	_ = slow[0].Close()
	if code := <-ended; code != 400 {
		t.Errorf("an incomplete body gets code %d, want 400", code)
	}
	b.MustPost(apitest.Demo)
	for _, pw := range slow[1:] {
		_ = pw.Close()
		<-ended
	}
}
