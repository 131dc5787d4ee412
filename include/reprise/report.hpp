#pragma once
// Includes everything that people look at: pages, plots, tables, traces, pictures, listings. Made
// from the results of the pipeline (reprise.hpp).

#include <reprise/graph/diff.hpp>
#include <reprise/report/dot.hpp>

#include <reprise/profile/metrics.hpp>

#include <reprise/report/extraction_dot.hpp>
#include <reprise/report/listing.hpp>
#include <reprise/report/pictures.hpp>
#include <reprise/rewrite/extract.hpp>

#include <reprise/report/batch_page.hpp>
#include <reprise/report/batch_plots.hpp>
#include <reprise/report/csv.hpp>
#include <reprise/report/html.hpp>
#include <reprise/report/html_assets.hpp>
#include <reprise/report/markup.hpp>
#include <reprise/report/palette.hpp>
#include <reprise/report/plots.hpp>
#include <reprise/report/stats.hpp>
#include <reprise/report/svg.hpp>
#include <reprise/report/trace.hpp>
