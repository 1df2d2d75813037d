package observation_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/observation"
	"loxilb/internal/telemetry/logs"
	"loxilb/test/apitest"
)

func TestLogs(t *testing.T) {
	t.Parallel()
	ring := logs.NewRing()
	b := apitest.New(t, func(o *httpapi.Options) { o.Lines = ring })
	if got := apitest.GetAs[v1.Logs](b, "/logs"); len(got.Logs) != 0 || got.HasMore {
		t.Errorf("an empty log: %+v", got)
	}
	for i := range 250 {
		level := [...]string{"DEBUG", "INFO", "WARN", "ERROR", "DEBUG-4"}[i%5]
		fmt.Fprintf(ring, "time=t level=%s msg=\"line %d\"\n", level, i)
	}
	first := apitest.GetAs[v1.Logs](b, "/logs")
	if len(first.Logs) != observation.DefaultLines || !first.HasMore || first.LogFile != logs.CurrentFile || !strings.HasSuffix(first.Logs[0], `"line 0"`) {
		t.Errorf(`got %+v, want the default number of lines, from "line 0" of the current file, and more to follow`, first)
	}
	next := apitest.GetAs[v1.Logs](b, fmt.Sprintf("/logs?lines=1&cursor=%d", first.NextCursor))
	if len(next.Logs) != 1 || !strings.HasSuffix(next.Logs[0], `"line 100"`) {
		t.Errorf("got %+v, want 1 element, next.Logs[0] ends with `\"line 100\"`", next)
	}
	for query, want := range map[string]int{
		"level=debug": 50, "level=TRACE": 50, "level=error": 50, "level=warning": 50, "keyword=line+24": 11,
		"level=info&keyword=line+24": 2, "file=loxilb.log": 250,
	} {
		if got := apitest.GetAs[v1.Logs](b, "/logs?lines=1000&"+query); got.LogCount != want || len(got.Logs) != want || got.HasMore {
			t.Errorf("%s: %d of %d lines, more: %v", query, got.LogCount, want, got.HasMore)
		}
	}
	for query, want := range map[string]int{"lines=-1": 400, "lines=10001": 400, "lines=x": 400, "level=loud": 400, "cursor=x": 400, "file=..%2Fetc%2Fpasswd": 404} {
		if w := b.Call("GET", httpapi.BaseURL+"/logs?"+query, ""); w.Code != want {
			t.Errorf("%s: got %d %s, want code %d", query, w.Code, w.Body, want)
		}
	}
	for range 100 {
		fmt.Fprintln(ring, strings.Repeat("x", 8000))
	}
	archives := apitest.GetAs[v1.LogArchives](b, "/log-archives")
	if len(archives.Archives) == 0 || len(archives.ArchiveInfo) != len(archives.Archives) || archives.ArchiveInfo[0].SizeBytes == 0 {
		t.Fatalf("got %+v, want archives that are not empty", archives)
	}
	w := b.Call("GET", httpapi.BaseURL+"/log-archives/"+archives.Archives[0], "")
	if w.Code != 200 || int64(w.Body.Len()) != archives.ArchiveInfo[0].SizeBytes {
		t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
	}
	if w := b.Call("GET", httpapi.BaseURL+"/log-archives/..%2F..%2Fetc%2Fpasswd", ""); w.Code != 404 {
		t.Errorf("a file that is no part of the log: %d", w.Code)
	}
}
