"""Sums of a profile by function: the form in which profiles of every protocol are compared."""


class Sums:
    """Adds up the samples of a profile that has these sample types, such as `cpu/nanoseconds`."""

    def __init__(self, sample_types):
        self.sample_types = sample_types
        self.rows = 0
        self.total = [0] * len(sample_types)
        self.of_functions = [{} for _ in sample_types]
        self.of_leaves = [{} for _ in sample_types]
        self.label_sets = []
        self.parts = {}

    def add(self, functions, values, labels, span=None):
        """Adds a sample with the functions of its stack, the leaf first. `span` has the ids of a link, as a pair."""
        self.rows += 1
        for place, value in enumerate(values):
            self.total[place] += value
            if functions:
                leaves = self.of_leaves[place]
                leaves[functions[0]] = leaves.get(functions[0], 0) + value
            for function in set(functions):
                sums = self.of_functions[place]
                sums[function] = sums.get(function, 0) + value
        if labels not in self.label_sets:
            self.label_sets.append(labels)
        if functions:
            part = self.part(labels, span)
            for place, value in enumerate(values):
                part[place][functions[0]] = part[place].get(functions[0], 0) + value

    def part(self, labels, span):
        """The sums by leaves of the samples with these labels and this span, which pprof has as labels."""
        ids = ("trace_id", "span_id")
        if span is None and all(name in labels for name in ids):
            span = [labels[name] for name in ids]
        labels = sorted((key, value) for key, value in labels.items() if key not in ids)
        return self.parts.setdefault((str(labels), str(span)), (dict(labels), span, [{} for _ in self.sample_types]))[2]

    def series(self):
        """How many series Pyroscope makes of it: one for each set of labels that are texts."""
        unbounded = ("profile_id", "span_id", "trace_id")
        texts = {
            tuple(sorted((key, value) for key, value in labels.items() if isinstance(value, str) and key not in unbounded))
            for labels in self.label_sets
        }
        return len(texts)

    def report(self):
        """What is printed of it."""
        by_type = lambda sums: dict(zip(self.sample_types, sums))
        return {
            "sample_types": self.sample_types,
            "rows": self.rows,
            "total": by_type(self.total),
            "functions": by_type(self.of_functions),
            "leaves": by_type(self.of_leaves),
            "label_sets": self.label_sets,
            "parts": [{"labels": labels, "span": span, "leaves": by_type(leaves)} for labels, span, leaves in self.parts.values()],
            "series": self.series(),
        }
