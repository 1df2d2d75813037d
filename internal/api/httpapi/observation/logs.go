package observation

import (
	"cmp"
	"io"
	"net/http"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/telemetry/logs"
)

const (
	// DefaultLines is the number of lines in an answer by default.
	DefaultLines = 100
	maxLines     = 10000
)

// GetLogs replies with a page of the log.
func (a *API) GetLogs(w http.ResponseWriter, _ *http.Request, params v1.GetLogsParams) {
	lines := cmp.Or(params.Lines, DefaultLines)
	if lines < 1 || lines > maxLines {
		rest.RefuseField(http.StatusBadRequest, "lines", strconv.Itoa(lines), "is out of range", "1 to "+strconv.Itoa(maxLines)).Write(w)
		return
	}
	level, p := levelOf(params.Level)
	if p != nil {
		p.Write(w)
		return
	}
	page, ok := a.Lines.Read(params.File, params.Cursor, lines, func(line string) bool {
		return (level == "" || strings.Contains(line, level)) && strings.Contains(line, params.Keyword)
	})
	if !ok {
		noFile(params.File).Write(w)
		return
	}
	rest.JSON(w, v1.Logs{
		Logs: append([]string{}, page.Lines...), LogFile: cmp.Or(params.File, logs.CurrentFile), LogCount: len(page.Lines),
		TotalSize: page.Total, HasMore: page.More, NextCursor: page.Next, ScannedBytes: page.Scanned,
	})
}

// levelOf returns a level's text in a log line; "" for any level.
func levelOf(word string) (string, *rest.Problem) {
	switch strings.ToLower(word) {
	case "":
		return "", nil
	case "trace":
		return "level=DEBUG-4 ", nil
	case "debug":
		return "level=DEBUG ", nil
	case "info", "notice":
		return "level=INFO ", nil
	case "warning", "warn":
		return "level=WARN ", nil
	case "error", "critical", "alert", "emergency":
		return "level=ERROR ", nil
	}
	return "", rest.RefuseField(http.StatusBadRequest, "level", word, "is not a level", logLevels)
}

// GetLogArchives replies with the names of the older log files.
func (a *API) GetLogArchives(w http.ResponseWriter, _ *http.Request) {
	out := v1.LogArchives{Archives: []string{}, ArchiveInfo: []v1.LogArchive{}}
	for _, f := range a.Lines.Archives() {
		out.Archives = append(out.Archives, f.Name)
		out.ArchiveInfo = append(out.ArchiveInfo, v1.LogArchive{Name: f.Name, SizeBytes: f.Size, Modified: f.Modified})
	}
	rest.JSON(w, out)
}

// GetLogArchive replies with an older log file.
func (a *API) GetLogArchive(w http.ResponseWriter, _ *http.Request, name string) {
	text, ok := a.Lines.File(name)
	if !ok {
		noFile(name).Write(w)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, text) // fails only if the client has disconnected
}

func noFile(name string) *rest.Problem {
	return rest.RefuseField(http.StatusNotFound, "file", name, "is not a kept part of the log", "GET "+rest.BaseURL+"/log-archives names them")
}
