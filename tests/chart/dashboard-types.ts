// SPDX-License-Identifier: Apache-2.0
// What each part of the dashboard has to be, by Grafana's own types; grafana_schema_test.py names them where it spells the parts.
import { Dashboard, FieldConfig, MatcherConfig, Panel, RowPanel } from '@grafana/schema';
import { PrometheusDataQuery } from '@grafana/schema/dist/esm/raw/composable/prometheus/dataquery/x/PrometheusDataQuery_types.gen';
import * as Stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import * as StateTimeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import * as Table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import * as TimeSeries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// As a file says it: an enum's value is the text or number that it stands for.
type Json<T> = T extends string
    ? `${T}`
    : T extends readonly (infer E)[]
      ? Json<E>[]
      : T extends object
        ? { [K in keyof T]: Json<T[K]> }
        : T;

// For some fields, one property: its name says of what type its value is.
type Property<T, Prefix extends string> = {
    [K in keyof T & string]-?: { id: `${Prefix}${K}`; value?: Json<T[K]> };
}[keyof T & string];

// A panel's plugin fills in what its options leave out, but not within them. Of what a panel's type leaves open, all is named
// here: with an index signature no key would be unknown.
type PanelOf<Type extends string, Options, Custom> = Json<Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'>> & {
    type: Type;
    options: Partial<Json<Options>>;
    fieldConfig: {
        defaults: Json<Omit<FieldConfig, 'custom'>> & { custom?: Partial<Json<Custom>> };
        overrides: {
            matcher: Json<MatcherConfig>;
            properties: (Property<Omit<FieldConfig, 'custom'>, ''> | Property<Custom, 'custom.'>)[];
        }[];
    };
    targets: Json<PrometheusDataQuery>[];
};

export type Around = Json<Omit<Dashboard, 'panels'>>;
export type row = Json<RowPanel>;
export type stat = PanelOf<'stat', Stat.Options, {}>;
export type state_timeline = PanelOf<'state-timeline', StateTimeline.Options, StateTimeline.FieldConfig>;
export type table = PanelOf<'table', Table.Options, Table.FieldConfig>;
export type timeseries = PanelOf<'timeseries', TimeSeries.Options, TimeSeries.FieldConfig>;
