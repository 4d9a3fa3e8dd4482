// Runs the cases of cases.yaml on Go's own text/template: JSON in, JSON out, one result per case.
//
// Functions that Go's templates lack and that are one line of Go's library are defined here, so that
// Go says what they give; the others have no result of Go's and are marked `ours`.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"text/template"
)

type request struct {
	Template string `json:"template"`
	Data     any    `json:"data"`
}

type result struct {
	Output *string `json:"output,omitempty"`
	Error  string  `json:"error,omitempty"`
}

var functions = template.FuncMap{
	"upper":     strings.ToUpper,
	"lower":     strings.ToLower,
	"trim":      strings.TrimSpace,
	"contains":  func(wanted, text string) bool { return strings.Contains(text, wanted) },
	"hasPrefix": func(prefix, text string) bool { return strings.HasPrefix(text, prefix) },
	"hasSuffix": func(suffix, text string) bool { return strings.HasSuffix(text, suffix) },
	"replace":   func(old, new, text string) string { return strings.ReplaceAll(text, old, new) },
	"split":     func(separator, text string) []string { return strings.Split(text, separator) },
	"quote":     func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
	"regexMatch": func(pattern, text string) (bool, error) {
		compiled, err := regexp.Compile(pattern)
		return err == nil && compiled.MatchString(text), err
	},
	"regexFind": func(pattern, text string) (string, error) {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return "", err
		}
		return compiled.FindString(text), nil
	},
	"add": func(a, b int) int { return a + b },
	"sub": func(a, b int) int { return a - b },
	"mul": func(a, b int) int { return a * b },
	"div": func(a, b int) (int, error) {
		if b == 0 {
			return 0, errors.New("division by zero")
		}
		return a / b, nil
	},
	"mod": func(a, b int) (int, error) {
		if b == 0 {
			return 0, errors.New("division by zero")
		}
		return a % b, nil
	},
	"min": func(a, b int) int { return min(a, b) },
	"max": func(a, b int) int { return max(a, b) },
	"join": func(separator string, items []any) string {
		texts := []string{}
		for _, item := range items {
			texts = append(texts, fmt.Sprint(item))
		}
		return strings.Join(texts, separator)
	},
}

// native turns JSON numbers into ints where they are whole, as a YAML document would have them.
func native(value any) any {
	switch value := value.(type) {
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return int(whole)
		}
		fraction, _ := value.Float64()
		return fraction
	case []any:
		for index := range value {
			value[index] = native(value[index])
		}
	case map[string]any:
		for key := range value {
			value[key] = native(value[key])
		}
	}
	return value
}

func run(each request) (answer result) {
	parsed, err := template.New("case").Funcs(functions).Parse(each.Template)
	if err != nil {
		return result{Error: "parse: " + err.Error()}
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, native(each.Data)); err != nil {
		return result{Error: "execute: " + err.Error()}
	}
	text := out.String()
	return result{Output: &text}
}

func main() {
	var requests []request
	decoder := json.NewDecoder(os.Stdin)
	decoder.UseNumber()
	if err := decoder.Decode(&requests); err != nil {
		panic(err)
	}
	results := make([]result, 0, len(requests))
	for _, each := range requests {
		results = append(results, run(each))
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		panic(err)
	}
}
