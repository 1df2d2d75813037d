package markdown

import (
	"fmt"
	"regexp"
	"strings"
)

// Manual returns a page of Markdown as a manual page of section 7. The page begins with a comment
// that names its origin, and a title; it has headings, paragraphs and lists. An item that begins
// with code and a colon is a term and its explanation.
func Manual(name, page string) string {
	var b strings.Builder
	origin, rest, _ := strings.Cut(page, "\n")
	origin = strings.TrimSuffix(strings.TrimPrefix(origin, "<!-- "), " -->")
	title, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimLeft(rest, "\n"), "# "), "\n")
	fmt.Fprintf(&b, ".\\\" %s\n.TH %s 7 \"\" loxilb \"Reference\"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n",
		origin, strings.ToUpper(name), strings.ReplaceAll(name, "-", `\-`), roff(strings.ToLower(title[:1])+title[1:]))
	term := regexp.MustCompile(`^((?:` + "`[^`]+`" + `(?:, )?)+(?: \*[^*]+\*)?): (.*)$`)
	for _, block := range blocks(rest) {
		heading := regexp.MustCompile("^(#+) (.*)$").FindStringSubmatch(block)
		item, isItem := strings.CutPrefix(block, "- ")
		switch m := term.FindStringSubmatch(item); {
		case heading != nil && len(heading[1]) > 2:
			b.WriteString(".SS " + roff(heading[2]) + "\n")
		case heading != nil:
			b.WriteString(".SH " + roff(heading[2]) + "\n")
		case isItem && m != nil:
			b.WriteString(".TP\n" + roff(m[1]) + "\n" + roff(m[2]) + "\n")
		case isItem:
			b.WriteString(".TP\n" + roff(item) + "\n")
		default:
			b.WriteString(".PP\n" + roff(block) + "\n")
		}
	}
	return b.String()
}

// blocks returns the headings, paragraphs and items of a text, each in a line.
func blocks(text string) (list []string) {
	begins := true
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			begins = true
			continue
		case begins || line == "-" || strings.HasPrefix(line, "- "):
			list = append(list, line)
		default:
			list[len(list)-1] += " " + line
		}
		begins = strings.HasPrefix(line, "#")
	}
	return list
}

// roff writes a line of Markdown in the language of manual pages. Links become their text.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	line = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(line, "$1")
	line = regexp.MustCompile("`([^`]*)`").ReplaceAllString(line, `\fB$1\fR`)
	line = regexp.MustCompile(`\*([^*]+)\*`).ReplaceAllString(line, `\fI$1\fR`)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
